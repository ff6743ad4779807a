//! The API of Vault or OpenBao on a local socket: the token of each request, the rules, and the transfer of bodies.

mod bodies;
mod cache;
mod clients;
mod coalescing;
mod conditional;
mod framing;
mod token_recovery;
mod keys;
mod leaks;
mod lease_paths;
mod namespaces;
mod offline;
mod openbao;
mod operations;
mod revocation;
mod served;
mod spellings;
mod unresponsive;

use std::time::Duration;

use keyward_agent::api_proxy::TokenMode;
use keyward_agent::server_client::ServerKind;
use keyward_http::client::{self, ServerAddress};
use keyward_http::guard::AccessMode;
use keyward_machine::secret_string::SecretString;
use serde_json::json;

use crate::harness::ports;
use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::tunnel::Tunnel;
use crate::harness::vault::{Proxied, fetch, rules};

const KEY: &str = "0123456789abcdef";

#[tokio::test]
async fn a_request_without_a_token_gets_the_sessions_token_and_one_with_a_token_keeps_it() {
    let proxied = Proxied::start();
    let response = proxied.get("secret/data/web?version=2").await;
    assert_eq!((response.status, response.text.as_str()), (200, r#"{"data":{}}"#));
    let request = proxied.vault.last();
    assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/v1/secret/data/web?version=2"));
    assert_eq!((request.token(), request.header("x-vault-request")), ("tok1", "true"));
    assert!(request.header("host").starts_with("127.0.0.1:"), "{request:?}");
    for (name, value) in [("x-vault-token", "mine"), ("authorization", "Bearer mine")] {
        fetch(proxied.request("POST", "secret/data/web").header(name, value).body("{}")).await;
        let request = proxied.vault.last();
        assert_eq!(request.header(name), value);
        assert!(!format!("{:?}", request.headers).contains("tok1"), "{request:?}");
    }
    fetch(proxied.request("LIST", "secret/metadata/").header("x-vault-token", "")).await;
    assert_eq!((proxied.vault.last().method.as_str(), proxied.vault.last().token()), ("LIST", "tok1"));
    proxied.publish("tok2");
    proxied.get("secret/data/web").await;
    assert_eq!(proxied.vault.last().token(), "tok2");
}

#[tokio::test]
async fn a_listener_may_put_the_sessions_token_on_every_request() {
    let proxied = Proxied::with(|options, _| options.token_mode = TokenMode::Always);
    for (name, value) in [("x-vault-token", "mine"), ("authorization", "Bearer mine")] {
        fetch(proxied.request("GET", "a").header(name, value)).await;
        let request = proxied.vault.last();
        assert_eq!((request.token(), request.header("authorization")), ("tok1", ""));
    }
}

#[tokio::test]
async fn the_listeners_key_is_accepted_as_a_token_and_never_forwarded() {
    let proxied = Proxied::admitting(AccessMode::Key(SecretString::from(KEY)), |_, _| {});
    for (name, value) in [("x-vault-token", KEY.to_owned()), ("authorization", format!("Bearer {KEY}"))] {
        let response = fetch(proxied.request("GET", "a").header(name, &value)).await;
        assert_eq!(response.status, 200, "{response:?}");
        let forwarded = proxied.vault.last();
        assert_eq!(forwarded.token(), "tok1");
        assert!(!format!("{:?}", forwarded.headers).contains(KEY), "{forwarded:?}");
    }
    fetch(proxied.request("GET", "sys/health").header("x-vault-token", KEY)).await;
    assert_eq!(proxied.vault.last().token(), "", "what needs no token is sent without any");
    let count_before = proxied.vault.requests().len();
    for (value, status) in [(Some("another-key-of-16"), 403), (None, 401)] {
        let mut request = proxied.request("GET", "a");
        if let Some(value) = value {
            request = request.header("x-vault-token", value);
        }
        assert_eq!(fetch(request).await.status, status);
    }
    assert_eq!(proxied.vault.requests().len(), count_before);
}

#[tokio::test]
async fn only_the_request_header_of_the_guard_can_be_disabled() {
    let plain = |proxied: &Proxied| proxied.client.get(format!("{}/v1/a", proxied.url));
    let strict = Proxied::start();
    let response = fetch(plain(&strict)).await;
    assert_eq!((response.status, response.error().as_str()), (412, "the header X-Vault-Request: true is missing"));
    let lifted = Proxied::with(|options, _| options.request_header = false);
    assert_eq!(fetch(plain(&lifted)).await.status, 200);
    assert_eq!(
        lifted.vault.last().header("x-vault-request"),
        "true",
        "a server behind an agent of its own asks for it"
    );
    for (name, value) in [("origin", "http://evil.example"), ("host", "evil.example"), ("x-forwarded-for", "10.0.0.1")]
    {
        let response = fetch(plain(&lifted).header(name, value)).await;
        assert!((400..=421).contains(&response.status), "{name}: {response:?}");
    }
    assert_eq!(lifted.vault.requests().len(), 1);
}

#[tokio::test]
async fn the_kind_of_the_server_decides_the_header() {
    let proxied = Proxied::with(|_, upstream| upstream.kind = ServerKind::Keyward);
    proxied.get("acl/policies").await;
    let request = proxied.vault.last();
    assert_eq!((request.header("x-service-token"), request.token()), ("tok1", ""));
    for (name, path) in [("x-consul-token", "a"), ("x-service-token", "a"), ("x-other", "a?token=mine")] {
        fetch(proxied.request("GET", path).header(name, "mine")).await;
        let request = proxied.vault.last();
        assert!(!format!("{:?}", request.headers).contains("tok1"), "{request:?}");
    }
}

#[tokio::test]
async fn a_server_behind_a_path_is_called_below_it() {
    let proxied = Proxied::with(|_, upstream| {
        if let ServerAddress::Url(url) = &mut upstream.client.address {
            url.set_path("/vault/");
        }
    });
    proxied.get("a?b=c").await;
    assert_eq!(proxied.vault.last().target, "/vault/v1/a?b=c");
}

#[tokio::test]
async fn paths_and_methods_pass_by_the_listeners_rules() {
    let proxied = Proxied::with(|options, _| {
        options.rules = rules(&["secret/*", "GET sys/*"], &["POST,PUT secret/data/admin*"], &[]);
        options.logins = false;
    });
    for (method, path, status) in [
        ("GET", "secret/data/web", 200),
        ("POST", "secret/data/web", 200),
        ("GET", "secret/data/admin", 200),
        ("POST", "secret/data/admin-1", 403),
        ("PUT", "sys/mounts", 403),
        ("GET", "sys/mounts", 200),
        ("GET", "auth/token/lookup-self", 403),
        ("POST", "auth/azure/login", 403),
        ("OPTIONS", "secret/data/web", 405),
    ] {
        assert_eq!(proxied.ask(method, path).await.status, status, "{method} {path}");
    }
    assert_eq!(proxied.vault.requests().len(), 4);
}

#[tokio::test]
async fn t13_ambiguous_paths_do_not_reach_the_server() {
    let proxied = Proxied::start();
    for path in [
        "/v1/secret/../sys/seal",
        "/v1/secret/%2e%2e/sys/seal",
        "/v1//sys/seal",
        "/v1/sys%2fseal",
        "/v1/sys%252fseal",
        "/v1/a%00",
        "/v1",
        "/",
        "/ui/",
    ] {
        let mut caller = Raw::tcp(proxied.address).await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n");
        let response = caller.ask(request).await;
        assert!(matches!(response.status, 400 | 404), "{path}: {response:?}");
    }
    assert_eq!(proxied.vault.requests().len(), 0);
}

#[tokio::test]
async fn protected_operations_need_the_callers_own_token_or_an_exemption() {
    const PATHS: [&str; 8] = [
        "auth/token/create",
        "auth/token/create-orphan",
        "team/auth/token/revoke-self",
        "auth/token/renew-self",
        "sys/seal",
        "sys/raw/core",
        "sys/rotate",
        "sys/wrapping/unwrap",
    ];
    let proxied = Proxied::start();
    for path in PATHS {
        let response = proxied.ask("POST", path).await;
        assert_eq!(response.status, 403, "{path}: {response:?}");
        assert!(response.error().contains("is not allowed with the agent's token"), "{response:?}");
        assert_eq!(fetch(proxied.request("POST", path).header("x-vault-token", "mine")).await.status, 200);
        assert_eq!(proxied.vault.last().token(), "mine");
    }
    let lifted = Proxied::with(|options, _| options.rules = rules(&[], &[], &["sys/wrapping", "auth/token/create"]));
    for path in PATHS {
        let expected = if path.contains("wrapping") || path.contains("create") { 200 } else { 403 };
        assert_eq!(lifted.ask("POST", path).await.status, expected, "{path}");
    }
}

#[tokio::test]
async fn an_exempt_operation_that_returns_the_token_is_served_without_it() {
    for (kind, method, path, name) in [
        (ServerKind::Vault, "POST", "auth/token/renew-self", "auth/token/renew-self"),
        (ServerKind::Vault, "PUT", "auth/token/renew", "auth/token/renew-self"),
        (ServerKind::Consul, "GET", "acl/token/self", "acl/token"),
    ] {
        let proxied = Proxied::with(|options, upstream| {
            options.rules = rules(&[], &[], &[name]);
            upstream.kind = kind;
        });
        proxied.publish("hvs.0123456789abcdef");
        proxied.vault.answers(|request| {
            let body = match request.token() {
                "" => json!({ "SecretID": request.header("x-consul-token"), "AccessorID": "a", "Local": true }),
                token => json!({ "auth": { "client_token": token, "accessor": "a", "lease_duration": 60 } }),
            };
            reply(200, &[("content-type", "application/json")], body.to_string())
        });
        let expected = match kind {
            ServerKind::Consul => json!({ "Local": true }),
            _ => json!({ "auth": { "lease_duration": 60 } }),
        };
        let response = proxied.ask(method, path).await;
        assert_eq!((response.status, response.json()), (200, expected), "{path}");
        let wrapped = fetch(proxied.request(method, path).header("x-vault-wrap-ttl", "60")).await;
        assert_eq!(wrapped.status, 403, "{path}: unwrapped by its caller it would tell the token");
    }
}

#[tokio::test]
async fn a_look_up_of_the_sessions_token_returns_neither_token_nor_accessor() {
    let proxied = Proxied::start();
    proxied.vault.answers(|request| {
        let id = request.token();
        let data = json!({"id": id, "accessor": format!("accessor-of-{id}"), "policies": ["web"], "ttl": 60});
        reply(200, &[("content-type", "application/json")], json!({ "data": data }).to_string())
    });
    for (method, path) in [("GET", "auth/token/lookup-self"), ("POST", "auth/token/lookup")] {
        let response = proxied.ask(method, path).await;
        assert_eq!(response.json()["data"], json!({"policies": ["web"], "ttl": 60}));
    }
    let own = fetch(proxied.request("GET", "auth/token/lookup-self").header("x-vault-token", "mine")).await;
    assert_eq!(own.json()["data"]["id"], "mine");
    let wrapped = fetch(proxied.request("GET", "auth/token/lookup-self").header("x-vault-wrap-ttl", "60")).await;
    assert_eq!(wrapped.status, 403, "unwrapped by its caller it would tell the token");
    proxied.vault.answers(|request| reply(200, &[], format!(r#"{{"other":["{}"]}}"#, request.token())));
    let odd = proxied.get("auth/token/lookup-self").await;
    assert_eq!((odd.status, odd.text.contains("tok1")), (502, false), "{odd:?}");
}

#[tokio::test]
async fn requests_during_a_login_wait_a_moment_for_it() {
    let proxied = Proxied::start();
    proxied.withdraw("the token was revoked", Duration::from_secs(1));
    let later = async {
        // Another that comes in after it is answered meanwhile.
        assert_eq!(fetch(proxied.request("GET", "a").header("x-vault-token", "mine")).await.status, 200);
        proxied.publish("tok2");
    };
    let (early, ()) = tokio::join!(proxied.get("secret/data/web"), later);
    assert_eq!(early.status, 200);
    assert!(proxied.vault.requests().iter().any(|request| request.token() == "tok2"));
    proxied.withdraw("the token was revoked", Duration::from_secs(1));
    let response = proxied.get("secret/data/web").await;
    assert_eq!((response.status, response.error().as_str()), (503, "the token was revoked"));
}

#[tokio::test]
async fn without_a_session_token_callers_get_retry_after_and_those_with_a_token_are_served() {
    let proxied = Proxied::start();
    proxied.withdraw("the role is unknown to the server", Duration::from_secs(17));
    let response = proxied.get("secret/data/web").await;
    assert_eq!((response.status, response.error().as_str()), (503, "the role is unknown to the server"));
    assert_eq!(response.headers["retry-after"], "17");
    assert_eq!(fetch(proxied.request("GET", "a").header("x-vault-token", "mine")).await.status, 200);
    for path in ["sys/health", "sys/seal-status", "sys/leader", "sys/init"] {
        assert_eq!(proxied.get(path).await.status, 200, "{path}");
    }
    assert_eq!(fetch(proxied.request("POST", "auth/azure/login").body("{}")).await.status, 200);
    assert!(proxied.vault.requests().iter().all(|request| request.token() != "tok1"));
}

#[tokio::test]
async fn a_call_to_an_unreachable_server_fails_within_seconds_with_the_cause() {
    let check = async |proxied: Proxied, path: &str, status: u16, cause: &str| {
        let response =
            tokio::time::timeout(Duration::from_secs(30), proxied.get(path)).await.expect("an answer in time");
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.error().contains("the server test at 127.0.0.1:"), "{response:?}");
        assert!(response.error().contains(cause), "{response:?}");
        assert!(response.headers.contains_key("retry-after"));
    };
    let nobody = ports::reserve();
    let away = Proxied::with(|_, upstream| {
        upstream.client.address = ServerAddress::Url(format!("http://{nobody}").parse().unwrap());
    });
    check(away, "a", 502, "cannot connect").await;
    let silent = Proxied::with(|options, _| options.response_timeout = Duration::from_millis(300));
    check(silent, "never", 504, "no response from the upstream within 300ms").await;
    let busy = Proxied::with(|options, upstream| {
        options.connections = 1;
        upstream.client.connect_timeout = Duration::from_millis(300);
    });
    let mut first = Raw::tcp(busy.address).await;
    first.send("GET /v1/never HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n").await;
    while busy.vault.open() == 0 {
        tokio::task::yield_now().await;
    }
    check(busy, "a", 503, "all 1 connections to the upstream are busy").await;
}

#[tokio::test]
async fn redirects_are_not_passed_on() {
    let proxied = Proxied::start();
    proxied.vault.answers(|_| reply(307, &[("location", "https://active.example.com/v1/a")], ""));
    let response = proxied.get("a").await;
    assert_eq!((response.status, response.headers.contains_key("location")), (502, false), "{response:?}");
    proxied.vault.answers(|_| {
        reply(200, &[("set-cookie", "a=b"), ("strict-transport-security", "max-age=1"), ("x-vault-index", "7")], "{}")
    });
    let response = proxied.get("a").await;
    assert!(
        !response.headers.contains_key("set-cookie") && !response.headers.contains_key("strict-transport-security")
    );
    assert_eq!(response.headers["x-vault-index"], "7");
}

#[tokio::test]
async fn requests_are_counted_by_listener_and_status_and_the_servers_time_is_measured() {
    let proxied = Proxied::start();
    proxied.get("a").await;
    proxied.get("a").await;
    proxied.vault.answers(|_| reply(404, &[], "{}"));
    proxied.get("a").await;
    let text = proxied.metrics.text();
    for line in [
        "keyward_local_requests_total{listener=\"vault\",code=\"200\"} 2",
        "keyward_local_requests_total{listener=\"vault\",code=\"404\"} 1",
        "keyward_upstream_seconds_count{server=\"test\",path=\"secret\"} 3",
        "keyward_upstream_requests_total{server=\"test\",path=\"secret\",status=\"2xx\"} 2",
        "keyward_upstream_requests_total{server=\"test\",path=\"secret\",status=\"404\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test]
async fn a_blocking_query_is_counted_and_its_time_is_not_measured() {
    let proxied = Proxied::with(|_, upstream| upstream.kind = ServerKind::Keyward);
    proxied.get("acl/policies?index=7&wait=3s").await;
    let counted = "keyward_upstream_requests_total{server=\"test\",path=\"system\",status=\"2xx\"}";
    let measured = "keyward_upstream_seconds_count{server=\"test\",path=\"system\"}";
    let text = proxied.metrics.text();
    assert!(text.contains(&format!("{counted} 1\n")) && !text.contains(measured), "{text}");
    proxied.get("acl/policies").await;
    let text = proxied.metrics.text();
    assert!(text.contains(&format!("{counted} 2\n")) && text.contains(&format!("{measured} 1\n")), "{text}");
}

#[tokio::test]
async fn a_server_behind_a_proxy_is_called_through_it() {
    // base64 of "me:hush"
    let tunnel = Tunnel::start("Basic bWU6aHVzaA==").await;
    let proxy = tunnel.address;
    let through = |user: &str| {
        let user = user.to_owned();
        Proxied::with(move |_, upstream| {
            upstream.client.proxy = client::ProxyMode::Through(format!("http://{user}{proxy}").parse().unwrap());
        })
    };
    let proxied = through("me:hush@");
    for _ in 0..3 {
        assert_eq!(proxied.get("secret/data/web").await.status, 200);
    }
    assert_eq!(proxied.vault.requests().len(), 3);
    let heads = tunnel.heads();
    assert_eq!(heads.len(), 1, "one connection is kept: {heads:?}");
    assert!(heads[0].starts_with("CONNECT 127.0.0.1:") && !heads[0].contains("tok1"), "{heads:?}");
    drop(proxied);
    let response = through("").get("a").await;
    assert_eq!(response.status, 502);
    assert!(response.error().contains("the proxy rejected CONNECT with HTTP 407"), "{response:?}");
}
