//! Thousands of invalid requests: each is refused in one line, and no record or memory use changes.

use serde_json::json;

use crate::harness::Acl;
use crate::harness::rng::TestRng;

const UUID: &str = "6a1253d2-1785-24fd-91c2-f8e78c745511";

const ROUTES: &[(&str, &str)] = &[
    ("PUT", "acl/token"),
    ("GET", "acl/token/self"),
    ("GET", "acl/token/:"),
    ("PUT", "acl/token/:"),
    ("DELETE", "acl/token/:"),
    ("PUT", "acl/token/:/clone"),
    ("GET", "acl/tokens"),
    ("PUT", "acl/role"),
    ("GET", "acl/role/:"),
    ("GET", "acl/role/name/:"),
    ("PUT", "acl/role/:"),
    ("DELETE", "acl/role/:"),
    ("GET", "acl/roles"),
    ("PUT", "acl/policy"),
    ("GET", "acl/policy/:"),
    ("PUT", "acl/policy/:"),
    ("DELETE", "acl/policy/:"),
    ("GET", "acl/policies"),
    ("PUT", "acl/bootstrap"),
    ("PUT", "operator/rekey"),
    ("PUT", "namespace"),
    ("GET", "namespace/:"),
    ("PUT", "namespace/:"),
    ("DELETE", "namespace/:"),
    ("GET", "namespaces"),
    ("POST", "internal/acl/authorize"),
    ("POST", "acl/token/self/explain"),
    ("POST", "acl/oidc/auth-url"),
    ("POST", "acl/oidc/callback"),
];

/// Names and ids for paths; none exists.
const SUBJECTS: &[&str] = &[
    UUID,
    "x",
    "",
    "%C3%A9",
    "a%2Fb",
    "a%20b",
    "%22%3C",
    "-",
    "6a1253d2-1785-24fd-91c2-f8e78c74551g",
    "*",
    "self",
    "%E2%80%AE",
    "00000000-0000-0000-0000-000000000000",
    "name",
    "%F0%9F%98%80",
];

/// Bodies that are valid by themselves.
const BODIES: &[&str] = &[
    "{}",
    "null",
    "",
    "[]",
    "{\"Name\": \"x\", \"Description\": \"d\"}",
    "{\"Name\": \"x\", \"Policies\": [{\"Name\": \"global-management\"}], \"Namespace\": \"default\"}",
    "{\"AuthMethod\": \"people\", \"RedirectURI\": \"http://localhost:8550/oidc/callback\", \"ClientNonce\": \"n\"}",
    "{\"AuthMethod\": \"people\", \"State\": \"AAAA\", \"Code\": \"c\", \"ClientNonce\": \"n\"}",
    "{\"Rules\": \"acl = \\\"write\\\"\", \"Name\": \"x\", \"Datacenters\": [\"dc1\"]}",
    "{\"AccessorID\": \"6a1253d2-1785-24fd-91c2-f8e78c745511\", \"Local\": true, \"ExpirationTTL\": \"5m\"}",
    "{\"Name\": \"x\", \"ACLs\": {\"PolicyDefaults\": [{\"Name\": \"global-management\"}]}, \"Meta\": {\"a\": \"b\"}}",
    "{\"ServiceIdentities\": [{\"ServiceName\": \"web\"}], \"NodeIdentities\": [{\"NodeName\": \"n\", \"Datacenter\": \"d\"}]}",
    "[{\"Resource\": \"acl\", \"Access\": \"read\"}]",
];

/// Defect of a request.
enum Defect {
    Query(&'static str),
    Header(&'static str, &'static str),
    Body(Vec<u8>),
}

/// Makes an invalid body of a valid one.
fn corrupt_body(rng: &mut TestRng) -> Vec<u8> {
    let mut body = BODIES[rng.below(BODIES.len())].as_bytes().to_vec();
    match rng.below(7) {
        0 => body.insert(rng.below(body.len() + 1), 0xff),
        1 => body.extend_from_slice(b" x"),
        2 => body = [b"{\"a\": ".to_vec(), b"[".repeat(1 + rng.below(5000))].concat(),
        3 => body = format!("{{\"Foo{}\": 1}}", rng.below(1000)).into_bytes(),
        4 => body = format!("{{\"Name\": {{\"a\": {}}}}}", rng.below(1000)).into_bytes(),
        5 => body = b"{\"Description\": \"a\", \"description\": \"b\"}".to_vec(),
        _ => body = vec![b'{'; 1 + rng.below(2000)],
    }
    body
}

/// Picks a defect that applies to the route; a body only where one is read.
fn pick_defect(method: &str, path: &str, rng: &mut TestRng) -> Defect {
    let reads_body = matches!(method, "PUT" | "POST");
    match rng.below(if reads_body { 14 } else { 7 }) {
        0 => Defect::Query("partition=other"),
        1 => Defect::Query("ns=%ff"),
        2 => Defect::Query("ns=a&ns=b"),
        3 => Defect::Query("token=a&token=b"),
        4 => Defect::Header("X-Consul-Namespace", "differs"),
        5 if path != "acl/bootstrap" => Defect::Header("X-Service-Token", UUID),
        5 | 6 => Defect::Header("X-Consul-Partition", "differs"),
        _ => Defect::Body(corrupt_body(rng)),
    }
}

/// Returns the indexes of all lists, which change with the store.
async fn list_indexes(acl: &Acl) -> Vec<(String, String)> {
    let mut all = vec![];
    for list in ["acl/tokens", "acl/roles", "acl/policies", "namespaces"] {
        let response = acl.get(&format!("/v1/{list}")).await;
        assert_eq!(response.status, 200);
        all.push((response.headers["x-service-index"].to_str().unwrap().to_owned(), response.text));
    }
    all
}

#[tokio::test]
async fn invalid_requests_are_refused_and_change_nothing() {
    let acl = Acl::start().await;
    acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let before = list_indexes(&acl).await;
    let mut rng = TestRng(0xbad);
    for number in 0..2000 {
        let (method, route) = ROUTES[rng.below(ROUTES.len())];
        let path = route.replace(':', SUBJECTS[rng.below(SUBJECTS.len())]);
        let mut body = BODIES[rng.below(BODIES.len())].as_bytes().to_vec();
        let mut query = ["", "pretty", "stale", "index=1&wait=1ms", "ns=default", "dc=dc9"][rng.below(6)].to_owned();
        let mut headers = vec![("X-Service-Namespace", "default")];
        let mut token = acl.root.as_str();
        match pick_defect(method, route, &mut rng) {
            Defect::Query(more) => query = format!("{query}&{more}"),
            Defect::Header("X-Service-Token", other) => token = other,
            // Without a namespace in the path none is required; a token that differs is still refused.
            Defect::Header(name, value) => {
                headers.push((name, value));
                if name == "X-Consul-Namespace" {
                    query = query.replace("ns=default", "");
                    headers.push(("X-Consul-Token", "differs"));
                }
            }
            Defect::Body(corrupted) => body = corrupted,
        }
        headers.push(("X-Service-Token", token));
        let response = acl.send(method, &format!("/v1/{path}?{query}"), &headers, &body).await;
        let text = format!("{number}: {method} {path}?{query} {:.200} {:?}", String::from_utf8_lossy(&body), response);
        assert!((400..500).contains(&response.status), "{text}");
        assert!(!response.text.is_empty() && response.text.len() < 4096, "{text}");
        assert!(!response.text.trim_end().contains(char::is_control), "{text}");
        assert!(!response.text.contains(&acl.root), "{text}");
    }
    assert_eq!(list_indexes(&acl).await, before);
}
