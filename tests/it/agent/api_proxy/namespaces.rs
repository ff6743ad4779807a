//! Namespaces that callers name: those that a listener allows; responses are not shared between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyward_agent::api_proxy::{AllowedNamespaces, NamespacePattern};
use keyward_http::guard::AccessMode;
use reqwest::header::HeaderValue;
use serde_json::json;

use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::vault::{FetchedResponse, Proxied, cache, fetch, rules};

const HOUR: Duration = Duration::from_hours(1);

/// A server that responds with the requested namespace, whether there is a token, and the number of the read.
fn echo_namespace_server(proxied: &Proxied) {
    let reads = Arc::new(AtomicU64::new(0));
    proxied.vault.answers(move |request| {
        let namespace = request.headers.get("x-vault-namespace").map(|value| value.as_bytes().to_vec());
        let namespace = String::from_utf8(namespace.unwrap_or_default()).unwrap();
        let has_token = request.headers.contains_key("x-vault-token");
        let read = reads.fetch_add(1, Ordering::SeqCst);
        let data = json!({ "namespace": namespace, "has_token": has_token, "read": read });
        reply(200, &[("content-type", "application/json")], json!({ "data": { "data": data } }).to_string())
    });
}

fn caching() -> Proxied {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache(HOUR, HOUR)));
    echo_namespace_server(&proxied);
    proxied
}

async fn get(proxied: &Proxied, path: &str, namespace: &str) -> FetchedResponse {
    fetch(
        proxied
            .request("GET", path)
            .header("x-vault-namespace", HeaderValue::from_bytes(namespace.as_bytes()).unwrap()),
    )
    .await
}

fn namespace(response: &FetchedResponse) -> String {
    response.json()["data"]["data"]["namespace"].as_str().unwrap_or_else(|| panic!("{response:?}")).to_owned()
}

#[tokio::test]
async fn t14_a_header_that_decides_something_is_no_connection_option() {
    let proxied = caching();
    for name in [
        "X-Vault-Namespace",
        "X-Vault-Token",
        "x-vault-request",
        "X-Vault-Wrap-TTL",
        "X-Vault-Index",
        "Authorization",
        "X-Keyward-Key",
        "X-Consul-Token",
        "X-Service-Namespace",
        "Host",
        "Content-Length",
        "Cache-Control",
        "Range",
        "If-None-Match",
    ] {
        for connection in [name.to_owned(), format!("close, {name}"), format!("keep-alive,\t{name} ,x")] {
            let request = format!(
                "GET /v1/secret/data/web HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nX-Vault-Namespace: team\r\n\
                 Connection: {connection}\r\n\r\n"
            );
            let response = Raw::tcp(proxied.address).await.ask(request).await;
            assert_eq!(response.status, 400, "{connection}: {response:?}");
            assert!(response.error().contains("Connection"), "{response:?}");
        }
    }
    assert!(proxied.vault.requests().is_empty());
    let request = "GET /v1/secret/data/web HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nX-Mine: 1\r\n\
                   Connection: keep-alive, x-mine\r\n\r\n";
    assert_eq!(Raw::tcp(proxied.address).await.ask(request).await.status, 200);
    assert_eq!(proxied.vault.last().header("x-mine"), "", "a header of this hop stays here");
}

#[tokio::test]
async fn responses_are_not_shared_between_namespaces() {
    let proxied = caching();
    for named in ["", "team", "t\u{e9}am", "t\u{e8}am", "team/web", "Team"] {
        for expected in ["MISS", "HIT"] {
            let response = get(&proxied, "secret/data/web", named).await;
            assert_eq!((response.status, response.cache()), (200, expected), "{named:?}");
            assert_eq!(namespace(&response), named);
        }
    }
    assert_eq!(namespace(&proxied.get("secret/data/web").await), "");
}

#[tokio::test]
async fn ambiguous_namespaces_are_refused() {
    let proxied = caching();
    for named in ["team//web", "//team", "team//", "team/../web", "..", "te am", "a\tb", "team/./web", "a\\b"] {
        let response = get(&proxied, "secret/data/web", named).await;
        assert_eq!(response.status, 400, "{named:?}: {response:?}");
        assert!(response.error().contains("namespace"), "{response:?}");
    }
    let latin = HeaderValue::from_bytes(b"t\xe9am").unwrap();
    let response = fetch(proxied.request("GET", "secret/data/web").header("x-vault-namespace", latin)).await;
    assert_eq!(response.status, 400, "{response:?}");
    let duplicate =
        proxied.request("GET", "secret/data/web").header("x-vault-namespace", "a").header("x-vault-namespace", "b");
    assert_eq!(fetch(duplicate).await.status, 400);
    assert!(proxied.vault.requests().is_empty());
}

#[tokio::test]
async fn queries_that_the_server_reads_otherwise_are_not_the_same_request() {
    let proxied = caching();
    let same = [("a=1&b=2", "b=2&a=1"), ("version=2", "versio%6e=%32"), ("a=x+y", "a=x%20y")];
    for (one, other) in same {
        assert_eq!(proxied.get(&format!("secret/data/web?{one}")).await.cache(), "MISS", "{one}");
        assert_eq!(proxied.get(&format!("secret/data/web?{other}")).await.cache(), "HIT", "{other}");
    }
    let others = [("version=1&version=2", "version=2&version=1"), ("v=%ff", "v=%fe"), ("c=a%2Bb", "c=a+b")];
    for (one, other) in others {
        assert_eq!(proxied.get(&format!("secret/data/web?{one}")).await.cache(), "MISS", "{one}");
        assert_eq!(proxied.get(&format!("secret/data/web?{other}")).await.cache(), "MISS", "{other}");
    }
}

#[tokio::test]
async fn a_write_is_seen_however_its_namespace_was_named() {
    let proxied = caching();
    for (path, named) in [("team/secret/data/web", ""), ("secret/data/web", "team"), ("web/secret/data/web", "team")] {
        let read =
            async || get(&proxied, "secret/data/web", if path.starts_with("web") { "team/web" } else { "team" }).await;
        read().await;
        assert_eq!(read().await.cache(), "HIT");
        let write = proxied.request("POST", path).header("x-vault-namespace", named).body("{}");
        assert_eq!(fetch(write).await.status, 200);
        assert_eq!(read().await.cache(), "MISS", "{named} {path}");
    }
    // The root namespace has a name of its own.
    for (read, written) in [("", "root"), ("root", ""), ("root/", "/")] {
        get(&proxied, "secret/data/web", read).await;
        assert_eq!(get(&proxied, "secret/data/web", read).await.cache(), "HIT");
        let write = proxied.request("POST", "secret/data/web").header("x-vault-namespace", written).body("{}");
        assert_eq!(fetch(write).await.status, 200);
        assert_eq!(get(&proxied, "secret/data/web", read).await.cache(), "MISS", "{read:?} {written:?}");
    }
}

#[tokio::test]
async fn rules_match_namespace_and_path_together() {
    let check = async |allow: &[&str], deny: &[&str], named: &str, path: &str, expected: u16| {
        let proxied = Proxied::with(|options, _| options.rules = rules(allow, deny, &[]));
        echo_namespace_server(&proxied);
        let response = get(&proxied, path, named).await;
        assert_eq!(response.status, expected, "{allow:?} {deny:?} {named:?} {path}: {response:?}");
    };
    check(&["secret/*"], &[], "", "secret/data/web", 200).await;
    check(&["secret/*"], &[], "team", "secret/data/web", 403).await;
    check(&["team/secret/*"], &[], "team", "secret/data/web", 200).await;
    check(&["team/secret/*"], &[], "", "team/secret/data/web", 200).await;
    check(&["team/secret/*"], &[], "team/web", "secret/data/web", 403).await;
    check(&["+/secret/*"], &[], "team", "secret/data/web", 200).await;
    check(&["*"], &["team/secret/*"], "team", "secret/data/web", 403).await;
    check(&["*"], &["team/secret/*"], "/team/", "secret/data/web", 403).await;
    check(&["*"], &["secret/*"], "team", "secret/data/web", 403).await;
    check(&["*"], &["team/web/*"], "team", "web/secret/data/web", 403).await;
    // A request without the session's token stays so, however its namespace and path are split.
    check(&[], &[], "sys", "wrapping/unwrap", 403).await;
    check(&[], &[], "auth", "token/create", 403).await;
}

#[tokio::test]
async fn callers_may_name_the_sessions_namespace_those_below_it_or_the_listeners_list() {
    let check = async |patterns: Option<&[&str]>, cases: &[(&str, u16)]| {
        let parse = |texts: &[&str]| texts.iter().map(|text| NamespacePattern::parse(text).unwrap()).collect();
        let proxied = Proxied::in_namespace(Some("team"), AccessMode::AnyLocalUser, |options, _| {
            options.cache = Some(cache(HOUR, HOUR));
            options.namespaces = patterns.map(parse).map(AllowedNamespaces::matching).unwrap_or_default();
        });
        echo_namespace_server(&proxied);
        let response = proxied.get("secret/data/web").await;
        assert_eq!(namespace(&response), "team", "who names none is in the session's");
        assert_eq!(response.json()["data"]["data"]["has_token"], true);
        assert_eq!(namespace(&proxied.get("sys/health").await), "", "a path of the root namespace alone");
        let own = fetch(proxied.request("GET", "secret/data/own").header("x-vault-token", "mine")).await;
        assert_eq!(namespace(&own), "team", "with a token of its own too, as rules read it");
        for (named, expected) in cases {
            // A path for each name: the cache gives what it has by another name of the same namespace.
            let response = get(&proxied, &format!("secret/data/of-{}", named.replace('/', "-")), named).await;
            assert_eq!(response.status, *expected, "{patterns:?} {named:?}: {response:?}");
            if *expected == 200 {
                assert_eq!(namespace(&response), *named);
            }
            let own = proxied.request("GET", "secret/data/other").header("x-vault-token", "mine");
            let response = fetch(own.header("x-vault-namespace", *named)).await;
            assert_eq!(response.status, *expected, "{patterns:?} {named:?}: a caller's own token is no exception");
        }
    };
    check(None, &[("team", 200), ("team/web", 200), ("", 403), ("root", 403), ("teams", 403), ("other", 403)]).await;
    check(Some(&["team"]), &[("team", 200), ("team/web", 403), ("other", 403)]).await;
    check(Some(&["root", "other/*"]), &[("root", 200), ("", 200), ("team", 403), ("other", 403), ("other/a", 200)])
        .await;
    check(Some(&["*"]), &[("", 200), ("team", 200), ("other/a", 200)]).await;
}

#[tokio::test]
async fn rules_are_relative_to_the_sessions_namespace() {
    let check = async |allow: &str, named: &str, path: &str, expected: u16| {
        let proxied = Proxied::in_namespace(Some("team"), AccessMode::AnyLocalUser, |options, _| {
            options.rules = rules(&[allow], &[], &[]);
            options.namespaces = AllowedNamespaces::matching(vec![NamespacePattern::parse("*").unwrap()]);
        });
        echo_namespace_server(&proxied);
        assert_eq!(get(&proxied, path, named).await.status, expected, "{allow} {named:?} {path}");
    };
    check("secret/*", "team", "secret/a", 200).await;
    check("secret/*", "team/web", "secret/a", 403).await;
    check("web/secret/*", "team/web", "secret/a", 200).await;
    check("web/secret/*", "team", "web/secret/a", 200).await;
    check("secret/*", "", "secret/a", 403).await;
    check("root/secret/*", "", "secret/a", 200).await;
    check("secret/*", "other", "secret/a", 403).await;
    check("other/secret/*", "other", "secret/a", 200).await;
}
