//! HTTP of the ACL API: paths, methods, tokens, bodies and headers of all operations.

use serde_json::{Value, json};

use crate::harness::raw::Raw;
use crate::harness::{Acl, Answer};

async fn raw(acl: &Acl) -> Raw {
    Raw::tcp(acl.url.strip_prefix("http://").unwrap().parse().unwrap()).await
}

/// Returns a header that must be equal under both names.
fn both<'a>(response: &'a Answer, name: &str) -> Option<&'a str> {
    let [ours, theirs] = ["x-service-", "x-consul-"].map(|start| response.headers.get(format!("{start}{name}")));
    assert_eq!(ours, theirs, "{name} in {response:?}");
    ours.map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn each_path_lists_its_methods() {
    let acl = Acl::start().await;
    let all = "OPTIONS,GET,PUT,DELETE";
    for (path, allow) in [
        ("acl/token", "OPTIONS,PUT"),
        ("acl/token/self", "OPTIONS,GET"),
        ("acl/token/x", all),
        ("acl/token/", all),
        ("acl/token/x/clone", "OPTIONS,PUT"),
        ("acl/tokens", "OPTIONS,GET"),
        ("acl/role", "OPTIONS,PUT"),
        ("acl/role/x", all),
        ("acl/role/name/x", "OPTIONS,GET"),
        ("acl/roles", "OPTIONS,GET"),
        ("acl/policy", "OPTIONS,PUT"),
        ("acl/policy/x", all),
        ("acl/policy/name/builtin/x", "OPTIONS,GET"),
        ("acl/policies", "OPTIONS,GET"),
        ("acl/bootstrap", "OPTIONS,PUT"),
        ("namespace", "OPTIONS,PUT"),
        ("namespace/x", all),
        ("namespaces", "OPTIONS,GET"),
        ("internal/acl/authorize", "OPTIONS,POST"),
    ] {
        let path = format!("/v1/{path}");
        let options = acl.call("OPTIONS", &path, None, None).await;
        assert_eq!((options.status, options.text.as_str()), (200, ""), "{path}");
        assert_eq!(options.headers["allow"], allow, "{path}");
        for method in ["PATCH", "HEAD", "POST", "get"] {
            if allow.split(',').any(|allowed| allowed == method) {
                continue;
            }
            let refused = acl.call(method, &path, None, None).await;
            assert_eq!((refused.status, refused.headers["allow"].to_str().unwrap()), (405, allow), "{method} {path}");
            let text = if method == "HEAD" { String::new() } else { format!("method {method} not allowed") };
            assert_eq!(refused.text, text, "{method} {path}");
            assert_eq!(both(&refused, "default-acl-policy"), Some("deny"));
        }
    }
}

#[tokio::test]
async fn unknown_paths_are_refused_with_the_texts_of_consul() {
    let acl = Acl::start().await;
    let unknown = "Invalid URL path: not a recognized HTTP API endpoint\n";
    let foreign = "Invalid URL path: if attempting to use the HTTP API, ensure the path starts with '/v1/'\n";
    let odd = "Invalid URL path: it has an empty or dotted segment, a control character, or invalid UTF-8";
    let mut raw = raw(&acl).await;
    for (path, status, text) in [
        ("/v1/nope", 404, unknown),
        ("/v1/", 404, unknown),
        ("/v1/acl/tokens/", 404, unknown),
        ("/v1/acl/token/x/y", 404, unknown),
        ("/v1/ACL/tokens", 404, unknown),
        ("/v2/v1/acl/tokens", 404, unknown),
        ("/v1/acl/token%2Fself", 404, unknown),
        ("/", 404, foreign),
        ("/v1", 404, foreign),
        ("/acl/tokens", 404, foreign),
        ("/v1/acl/token/%00", 400, odd),
        ("/v1/acl/token/a%0ab", 400, odd),
        ("/v1/acl/token/%7f", 400, odd),
        ("/v1/acl/token/%ff", 400, odd),
        ("/v1//acl/tokens", 400, odd),
        ("//v1/acl/tokens", 400, odd),
        ("/v1/acl/./tokens", 400, odd),
        ("/v1/acl/../acl/tokens", 400, odd),
        ("/v1/acl/%2e%2E/acl/tokens", 400, odd),
        ("/elsewhere/../v1/acl/tokens", 400, odd),
        ("/%00", 400, odd),
    ] {
        let response = raw.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert_eq!((response.status, response.body.as_str()), (status, text), "{path}");
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
    }
}

#[tokio::test]
async fn a_base_path_may_prefix_all_paths() {
    let acl = Acl::start_with(|options| options.api.base_path = "/iam/acl".to_owned()).await;
    for (path, status) in [
        ("/iam/acl/v1/acl/roles", 200),
        ("/v1/acl/roles", 200),
        ("/iam/acl/acl/roles", 404),
        ("/iam/aclv1/acl/roles", 404),
        ("/iam/v1/acl/roles", 404),
    ] {
        assert_eq!(acl.get(path).await.status, status, "{path}");
    }
    let made = acl.make("/iam/acl/v1/acl/role", json!({"Name": "r"})).await;
    assert_eq!(acl.get("/v1/acl/role/name/r").await.json(), made);
}

#[tokio::test]
async fn json_is_indented_on_request_and_html_characters_are_escaped() {
    let acl = Acl::start().await;
    acl.make("/v1/acl/role", json!({"Name": "r", "Description": "<a> & b"})).await;
    let compact = acl.get("/v1/acl/role/name/r").await;
    assert_eq!(compact.headers["content-type"], "application/json");
    assert!(compact.text.contains(r#""Description":"\u003ca\u003e \u0026 b""#), "{compact:?}");
    assert!(!compact.text.contains('\n') && !compact.text.contains(": "));
    for query in ["pretty", "pretty=1", "pretty=false", "pretty="] {
        let pretty = acl.get(&format!("/v1/acl/role/name/r?{query}")).await;
        assert!(pretty.text.starts_with("{\n    \"ID\": \"") && pretty.text.ends_with("\n}\n"), "{query} {pretty:?}");
        assert_eq!(pretty.json(), compact.json());
    }
    let pretty = acl.get("/v1/acl/roles?pretty").await.text;
    assert!(pretty.starts_with("[\n    {\n        \"ID\": ") && pretty.ends_with("\n]\n"), "{pretty}");
    let made = acl.put("/v1/acl/role?pretty", json!({"Name": "s"})).await.text;
    assert!(made.starts_with("{\n    \"ID\": \"") && made.ends_with("\n}\n"), "{made}");
    let hidden = acl.token_with("acl = \"read\"").await;
    let list = acl.call("GET", "/v1/acl/tokens", Some(&hidden), None).await.text;
    assert!(list.contains(r#""SecretID":"\u003chidden\u003e""#), "{list}");
}

#[tokio::test]
async fn the_token_is_accepted_in_several_places_with_a_fixed_precedence() {
    let acl = Acl::start().await;
    let root = acl.root.as_str();
    let junk = "11111111-1111-1111-1111-111111111111";
    let ask = async |query: &str, headers: &[(&str, &str)]| {
        let response = acl.send("GET", &format!("/v1/acl/roles{query}"), headers, b"").await;
        (response.status, response.text)
    };
    let (in_query, junk_in_query) = (format!("?token={root}"), format!("?token={junk}"));
    let bearer = |scheme: &str, secret: &str| format!("{scheme} {secret}");
    let ok = (200, "[]".to_owned());
    assert_eq!(ask(&in_query, &[]).await, ok);
    for name in ["X-Service-Token", "x-consul-token", "X-Vault-Token"] {
        assert_eq!(ask("", &[(name, root)]).await, ok, "{name}");
    }
    for value in [bearer("Bearer", root), bearer("bearer", root), bearer("BEARER ", &format!("{root} more"))] {
        assert_eq!(ask("", &[("Authorization", &value)]).await, ok);
    }
    // Precedence: query, header, bearer; empty values are ignored.
    let junk_bearer = bearer("Bearer", junk);
    assert_eq!(ask(&in_query, &[("X-Service-Token", junk), ("Authorization", &junk_bearer)]).await, ok);
    assert_eq!(ask("?token=", &[("X-Service-Token", root), ("Authorization", &junk_bearer)]).await, ok);
    assert_eq!(ask("", &[("X-Service-Token", ""), ("Authorization", &bearer("Bearer", root))]).await, ok);
    let unknown = (403, "ACL not found".to_owned());
    assert_eq!(ask(&junk_in_query, &[("X-Service-Token", root)]).await, unknown);
    assert_eq!(ask("", &[("X-Service-Token", junk), ("Authorization", &bearer("Bearer", root))]).await, unknown);
    for reserved in ["allow", "deny", "manage", "x"] {
        assert_eq!(ask("", &[("X-Service-Token", reserved)]).await, unknown, "{reserved}");
    }
    // Two different values in one place are ambiguous.
    let twice = "Invalid header: \"x-service-token\" is given twice with different values";
    assert_eq!(ask("", &[("X-Service-Token", root), ("X-Consul-Token", junk)]).await, (400, twice.to_owned()));
    assert_eq!(ask("", &[("X-Service-Token", root), ("X-Consul-Token", root)]).await, ok);
    let (status, text) = ask(&format!("{in_query}&token={junk}"), &[]).await;
    assert_eq!((status, text.contains("\"token\" is given twice"), text.contains(root)), (400, true, false), "{text}");
    assert_eq!(ask("", &[("Authorization", &bearer("Bearer", root)), ("Authorization", &junk_bearer)]).await.0, 400);

    let anonymous = "Permission denied: anonymous token lacks permission 'acl:read'. The anonymous token is used implicitly \
                     when a request does not specify a token.";
    assert_eq!(ask("", &[]).await, (403, anonymous.to_owned()));
    assert_eq!(ask("", &[("X-Service-Token", "anonymous")]).await, (403, anonymous.to_owned()));
    assert_eq!(ask("", &[("Authorization", &bearer("Basic", root))]).await, (403, anonymous.to_owned()));
    let unprivileged_token = acl.make("/v1/acl/token", json!({})).await;
    let text = format!(
        "Permission denied: token with AccessorID '{}' lacks permission 'acl:read'",
        unprivileged_token["AccessorID"].as_str().unwrap()
    );
    assert_eq!(ask("", &[("X-Service-Token", unprivileged_token["SecretID"].as_str().unwrap())]).await, (403, text));
}

#[tokio::test]
async fn a_token_in_the_query_is_ignored_unless_configured() {
    let acl = Acl::start_with(|options| options.api.token_in_query = false).await;
    let refused = acl.send("GET", &format!("/v1/acl/roles?token={}", acl.root), &[], b"").await;
    assert_eq!((refused.status, refused.text.contains("anonymous token lacks")), (403, true));
    let both = acl.send("GET", "/v1/acl/roles?token=junk", &[("X-Service-Token", &acl.root)], b"").await;
    assert_eq!(both.status, 200);
}

#[tokio::test]
async fn bodies_are_decoded_leniently_and_errors_hold_no_values() {
    let acl = Acl::start().await;
    let root = acl.root.clone();
    let put = async |path: &str, body: &[u8]| acl.send("PUT", path, &[("X-Service-Token", &root)], body).await;
    let deep = format!("{{\"Name\": {}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let before = acl.get("/v1/acl/roles").await;
    for (body, text) in [
        (&b""[..], "Role decoding failed: EOF"),
        (b" \n ", "Role decoding failed: EOF"),
        (&[0, 1, 2, 3], "Role decoding failed: invalid JSON at line 1, column 1"),
        (b"{\"Name\": \"hush\"", "Role decoding failed: invalid JSON"),
        (b"{\"Name\": \"hush\"} x", "Role decoding failed: invalid JSON"),
        (b"{\"Name\": \"\xff hush\"}", "Role decoding failed: invalid JSON"),
        (b"Name=hush", "Role decoding failed: invalid JSON"),
        (deep.as_bytes(), "Role decoding failed: invalid JSON"),
        (b"[\"hush\"]", "cannot unmarshal array into an object"),
        (b"\"hush\"", "cannot unmarshal string into an object"),
        (b"{\"Name\": \"r\", \"Foo\": \"hush\"}", "json: unknown field \"Foo\""),
        (b"{\"Name\": \"r\", \"Local\": true}", "json: unknown field \"Local\""),
        (b"{\"Name\": \"r\", \"Policies\": [{\"ID\": \"hush\", \"Foo\": 1}]}", "json: unknown field \"Foo\""),
        (b"{\"Name\": \"r\", \"Name\": \"hush\"}", "duplicate field \"Name\""),
        (b"{\"Name\": \"r\", \"NAME\": \"hush\"}", "duplicate field"),
        (b"{\"Name\": [\"hush\"]}", "cannot unmarshal array into field Name of type string"),
        (b"{\"Name\": 7}", "cannot unmarshal number into field Name of type string"),
        (b"{\"Name\": \"r\", \"Policies\": \"hush\"}", "cannot unmarshal string into field Policies of type array"),
        (b"{\"Name\": \"r\", \"Policies\": [\"hush\"]}", "cannot unmarshal string into an object"),
        (b"{\"Name\": \"r\", \"Namespace\": \"h_ush\"}", "Invalid namespace"),
        (b"null", "no Name is set"),
        (b"{}", "no Name is set"),
    ] {
        let response = put("/v1/acl/role", body).await;
        let excerpt = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(response.status, 400, "{excerpt} {response:?}");
        assert!(response.text.contains(text), "{excerpt} {response:?}");
        assert!(!response.text.contains("hush") && !response.text.contains('\n'), "{excerpt} {response:?}");
        assert_eq!(response.headers["content-type"], "text/plain; charset=utf-8", "{excerpt}");
    }
    for path in ["/v1/acl/token", "/v1/acl/policy", "/v1/namespace", "/v1/acl/token/x/clone"] {
        assert_eq!(put(path, &[0, 1, 2]).await.status, 400, "{path}");
        assert_eq!(put(path, b"").await.status, 400, "{path}");
    }
    // A body is decoded before the caller is authenticated.
    let nobody = acl.send("PUT", "/v1/acl/role", &[], b"{").await;
    assert_eq!((nobody.status, nobody.text.contains("invalid JSON")), (400, true));
    let id = "/v1/acl/role/11111111-1111-1111-1111-111111111111";
    let other = acl.call("PUT", id, None, Some(json!({"ID": "22222222-2222-2222-2222-222222222222"}))).await;
    assert_eq!((other.status, other.text.as_str()), (400, "Role ID in URL and payload do not match"));
    let after = acl.get("/v1/acl/roles").await;
    assert_eq!((&after.text, both(&after, "index")), (&before.text, both(&before, "index")));

    let lax = br#" {"nAmE": "lax", "Policies": null, "ServiceIdentities": null, "Hash": 1, "CreateIndex": "x"} "#;
    for (number, kind) in ["text/plain", "application/x-www-form-urlencoded", ""].into_iter().enumerate() {
        let body = String::from_utf8_lossy(lax).replace("lax", &format!("lax{number}"));
        let headers = [("X-Service-Token", root.as_str()), ("Content-Type", kind)];
        let made = acl.send("PUT", "/v1/acl/role", &headers, body.as_bytes()).await;
        assert_eq!(made.status, 200, "{made:?}");
    }
    // Operations without a body ignore one.
    assert_eq!(acl.call("GET", "/v1/acl/roles", Some(&root), Some(json!("junk"))).await.status, 200);
    let path = format!("/v1/acl/role/{}", acl.get("/v1/acl/role/name/lax0").await.json()["ID"].as_str().unwrap());
    assert_eq!(acl.call("DELETE", &path, Some(&root), Some(json!("junk"))).await.text, "true");
}

#[tokio::test]
async fn a_body_is_at_most_half_a_mebibyte_large() {
    let acl = Acl::start().await;
    let sized = |size: usize| {
        let frame = json!({"Name": "large", "Description": ""}).to_string().len();
        json!({"Name": "large", "Description": "x".repeat(size - frame)}).to_string()
    };
    let large = sized(512 * 1024 + 1);
    let refused = acl.send("PUT", "/v1/acl/role", &[("X-Service-Token", &acl.root)], large.as_bytes()).await;
    assert_eq!((refused.status, refused.text.as_str()), (413, "the body is larger than 524288 bytes"));
    // A too large Content-Length is refused before the body is sent.
    let head = format!(
        "PUT /v1/acl/role HTTP/1.1\r\nHost: localhost\r\nX-Service-Token: {}\r\nContent-Length: 99999999\r\n\r\n",
        acl.root
    );
    assert_eq!(raw(&acl).await.ask(head).await.status, 413);
    let taken = acl.send("PUT", "/v1/acl/role", &[("X-Service-Token", &acl.root)], sized(512 * 1024).as_bytes()).await;
    assert_eq!(taken.status, 200, "{:.200}", taken.text);
    assert_eq!(acl.get("/v1/acl/role/name/large").await.json(), taken.json());
}

#[tokio::test]
async fn only_reads_have_index_headers() {
    let acl = Acl::start().await;
    let read = async |query: &str| acl.get(&format!("/v1/acl/roles{query}")).await;
    let first = read("").await;
    assert_eq!(both(&first, "index"), Some("1"), "never zero: {first:?}");
    for (query, mode) in [
        ("", "leader"),
        ("?leader", "leader"),
        ("?consistent", "consistent"),
        ("?stale", "stale"),
        ("?stale=false", "stale"),
        ("?max_stale=5s", "stale"),
        ("?cached&dc=dc1&near=x&filter=Name==a", "leader"),
    ] {
        let response = read(query).await;
        assert_eq!((response.status, both(&response, "effective-consistency")), (200, Some(mode)), "{query}");
        assert_eq!(both(&response, "knownleader"), Some("true"));
        assert_eq!(both(&response, "lastcontact"), Some("0"));
        assert_eq!(both(&response, "query-backend"), Some("blocking-query"));
        assert_eq!(both(&response, "default-acl-policy"), Some("deny"));
        assert_eq!(both(&response, "results-filtered-by-acls"), None);
        assert_eq!(response.headers["cache-control"], "no-store");
    }
    for (query, text) in [
        ("?index=abc", "Invalid index"),
        ("?index=-1", "Invalid index"),
        ("?index=18446744073709551616", "Invalid index"),
        ("?index=1&index=2", "\"index\" is given twice"),
        ("?index=1&wait=abc", "Invalid wait time"),
        ("?wait=5", "Invalid wait time"),
        ("?stale&consistent", "Cannot specify ?stale with ?consistent, conflicting semantics."),
        ("?max_stale=x", "Invalid max_stale value \"x\""),
        ("?ns=%ff", "Invalid query string"),
    ] {
        let response = read(query).await;
        assert_eq!((response.status, response.text.contains(text)), (400, true), "{query} {response:?}");
        assert_eq!(both(&response, "index"), None);
    }
    let headers = [("X-Service-Token", acl.root.as_str()), ("Cache-Control", "max-age=abc")];
    let response = acl.send("GET", "/v1/acl/roles", &headers, b"").await;
    assert_eq!((response.status, response.text.as_str()), (400, "Invalid Cache-Control header."));

    // Writes ignore blocking parameters, and their responses have no index.
    let odd = "index=abc&wait=abc&stale&consistent";
    let made = acl.put(&format!("/v1/acl/role?{odd}"), json!({"Name": "r"})).await;
    let path = format!("/v1/acl/role/{}?{odd}", made.json()["ID"].as_str().unwrap());
    let waits = acl.put(&path.replace(odd, "index=999999&wait=10m"), json!({"Name": "r"})).await;
    for response in [made, waits, acl.delete(&path).await] {
        assert_eq!(response.status, 200, "{response:?}");
        for name in ["index", "knownleader", "lastcontact", "effective-consistency", "query-backend"] {
            assert_eq!(both(&response, name), None, "{name}");
        }
        assert_eq!(both(&response, "default-acl-policy"), Some("deny"));
    }
    // A denied read has no index either; a read of an absent record has one for blocking queries.
    let denied = acl.call("GET", "/v1/acl/roles", None, None).await;
    assert_eq!((denied.status, both(&denied, "index")), (403, None));
    let missing = acl.get("/v1/acl/role/name/none").await;
    assert_eq!((missing.status, both(&missing, "index").is_some()), (404, true));
    assert!(missing.json_error(), "{missing:?}");
}

impl Answer {
    /// True if it is one line of plain text.
    fn json_error(&self) -> bool {
        serde_json::from_str::<Value>(&self.text).is_err() && !self.text.contains('\n') && !self.text.is_empty()
    }
}

#[tokio::test]
async fn requests_of_web_pages_and_for_foreign_hosts_are_refused() {
    let acl = Acl::start_with(|options| {
        options.api.allowed_hosts.insert("acl.example.com".to_owned());
    })
    .await;
    let read = async |headers: &[(&str, &str)], path: &str| {
        let headers: Vec<_> = headers.iter().copied().chain([("X-Service-Token", acl.root.as_str())]).collect();
        acl.send("GET", path, &headers, b"").await
    };
    for path in ["/v1/acl/token/self", "/v1/sys/health", "/v1/auth/token/lookup-self"] {
        for header in
            [("Origin", "null"), ("Origin", "http://localhost"), ("Sec-Fetch-Site", "none"), ("sec-fetch-x", "")]
        {
            let refused = read(&[header], path).await;
            assert_eq!(refused.status, 403, "{path} {header:?}: {refused:?}");
            assert!(refused.text.contains("requests from web pages are not allowed"), "{refused:?}");
        }
        for host in ["evil.example.com", "localhost.evil.example.com", "127.0.0.2", "user@localhost"] {
            let refused = read(&[("Host", host)], path).await;
            assert_eq!(refused.status, 421, "{path} {host}: {refused:?}");
        }
        for host in ["localhost", "localhost:1", "127.0.0.1", "ACL.example.com:8500"] {
            assert_ne!(read(&[("Host", host)], path).await.status, 421, "{path} {host}");
        }
    }
    assert_eq!(read(&[("Host", "acl.example.com")], "/v1/acl/token/self").await.status, 200);
    let error = acl.send("GET", "/v1/auth/token/lookup-self", &[("Origin", "null")], b"").await.error();
    assert!(error.contains("web pages"), "Vault's form of an error: {error}");
    let count = "keyward_local_refused_total{listener=\"acl\",reason=\"browser\"} 13\n";
    assert!(acl.metrics.text().contains(count), "{}", acl.metrics.text());
}
