//! Invalid input of the Vault API: a clear error, no panic, no change.

use serde_json::json;

use super::World;

#[tokio::test]
async fn invalid_login_bodies_are_refused_without_quoting_values() {
    let world = World::start().await;
    let jwt = world.jwt();
    let login = async |body: &[u8]| world.server.send("POST", "/v1/auth/cloud/login", &[], body).await;
    let long = format!("{{\"role\": \"{}\"}}", "x".repeat(70_000));
    let deep = format!("{{\"role\": {}", "[".repeat(20_000));
    let twice = format!("{{\"role\": \"elsewhere\", \"role\": \"principal\", \"jwt\": \"{jwt}\"}}");
    for (body, status, reason) in [
        (&b""[..], 400, "the body is not a JSON object"),
        (b"  ", 400, "the body is not a JSON object"),
        (b"null", 400, "the body is not a JSON object"),
        (b"[]", 400, "the body is not a JSON object"),
        (b"\"hush\"", 400, "the body is not a JSON object"),
        (b"role=principal&jwt=hush", 400, "the body is not a JSON object"),
        (b"{", 400, "invalid JSON at line 1, column 1"),
        (b"{\"role\": \"hush\"} x", 400, "invalid JSON at line 1, column 18"),
        (b"{\"role\": \"\xff\"}", 400, "invalid JSON"),
        (deep.as_bytes(), 400, "wrong type of the value"),
        (b"{}", 400, "jwt is required"),
        (b"{\"role\": \"principal\"}", 400, "jwt is required"),
        (b"{\"role\": \"principal\", \"jwt\": null}", 400, "jwt is required"),
        (b"{\"role\": \"principal\", \"jwt\": \"\"}", 400, "jwt is required"),
        (b"{\"jwt\": \"hush\"}", 400, "role is required"),
        (b"{\"jwt\": \"hush\", \"role\": \"\"}", 400, "role is required"),
        (b"{\"jwt\": \"hush\", \"role\": \"other\"}", 400, "invalid role name \"other\""),
        (b"{\"jwt\": \"hush\", \"role\": \"../principal\"}", 400, "invalid role name"),
        (b"{\"jwt\": \"hush\", \"role\": \"a\\u0000\\n\\u202e\"}", 400, "invalid role name \"a\\0\\n\\u{202e}\""),
        (b"{\"jwt\": \"hush\", \"role\": \"principal\"}", 400, "malformed jwt"),
        (b"{\"jwt\": {\"hush\": 1}, \"role\": \"principal\"}", 400, "wrong type of the value"),
        (b"{\"jwt\": 7, \"role\": \"principal\"}", 400, "wrong type of the value"),
        (b"{\"role\": [\"hush\"]}", 400, "wrong type of the value"),
        (b"{\"rolle\": \"principal\"}", 400, "unknown field `rolle`"),
        (b"{\"Role\": \"principal\"}", 400, "unknown field `Role`"),
        (twice.as_bytes(), 400, "duplicate field `role`"),
        (long.as_bytes(), 413, "the body is larger than 65536 bytes"),
    ] {
        let response = login(body).await;
        let excerpt = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(response.status, status, "{excerpt} {response:?}");
        assert!(response.error().contains(reason), "{excerpt} {response:?}");
        assert!(!response.text.contains("hush"), "{excerpt} {response:?}");
        assert_eq!(response.headers["content-type"], "application/json", "{excerpt}");
    }
    let body = json!({"role": "principal", "jwt": jwt}).to_string();
    assert_eq!(login(format!(" \n{body}\n").as_bytes()).await.status, 200);
    let typed = world.server.send("PUT", "/v1/auth/cloud/login", &[("Content-Type", "text/plain")], body.as_bytes());
    assert_eq!(typed.await.status, 200);
}

#[tokio::test]
async fn unsupported_features_are_refused_and_not_ignored() {
    let world = World::start().await;
    let body = json!({"role": "principal", "jwt": world.jwt()}).to_string();
    let login =
        async |headers: &[(&str, &str)], path: &str| world.server.send("POST", path, headers, body.as_bytes()).await;
    let path = "/v1/auth/cloud/login";
    for (headers, path, status, reason) in [
        (&[("X-Vault-Wrap-TTL", "60")][..], path, 400, "does not wrap responses"),
        (&[("X-Vault-Namespace", "team")], path, 400, "not \"team\""),
        (&[("X-Consul-Namespace", "team")], path, 400, "not \"team\""),
        (&[], "/v1/auth/other/login", 404, "no such auth method"),
        (&[], "/v1/auth/%63loud%2F/login", 404, "no such auth method"),
        (&[], "/v1/auth/%ff/login", 400, "a control character, or invalid UTF-8"),
        (&[], "/v1/auth/cloud/x/login", 404, "no handler for route"),
        (&[], "/v1/auth/token/login", 404, "no such auth method"),
    ] {
        let response = login(headers, path).await;
        assert_eq!(response.status, status, "{path} {response:?}");
        assert!(response.error().contains(reason), "{path} {response:?}");
    }
    for namespace in ["default", "root", "default/", ""] {
        assert_eq!(login(&[("X-Vault-Namespace", namespace)], path).await.status, 200);
    }
}

#[tokio::test]
async fn a_method_not_allowed_response_lists_the_allowed_methods() {
    let world = World::start().await;
    for (method, path, allow, acl) in [
        ("GET", "/v1/auth/cloud/login", "OPTIONS,PUT,POST", false),
        ("DELETE", "/v1/auth/cloud/login", "OPTIONS,PUT,POST", false),
        ("POST", "/v1/auth/token/lookup-self", "OPTIONS,GET", false),
        ("GET", "/v1/auth/token/revoke-self", "OPTIONS,PUT,POST", false),
        ("GET", "/v1/auth/token/renew-self", "OPTIONS,PUT,POST", false),
        ("PUT", "/v1/acl/token/self", "OPTIONS,GET", true),
    ] {
        let response = world.server.send(method, path, &[], b"").await;
        assert_eq!(
            (response.status, response.headers["allow"].to_str().unwrap()),
            (405, allow),
            "{method} {path} {response:?}"
        );
        if acl {
            assert_eq!(response.text, "method PUT not allowed");
        } else {
            assert_eq!(response.error(), "unsupported operation");
        }
    }
    for path in ["/", "/auth/cloud/login"] {
        let response = world.server.send("GET", path, &[], b"").await;
        assert_eq!(response.status, 404, "{response:?}");
        assert!(response.text.contains("ensure the path starts with '/v1/'"), "{response:?}");
    }
    let response = world.server.send("GET", "/v1/acl/nothing", &[], b"").await;
    let expected = "Invalid URL path: not a recognized HTTP API endpoint\n";
    assert_eq!((response.status, response.text.as_str()), (404, expected));
    let health = world.server.send("GET", "/v1/sys/health", &[], b"").await;
    assert_eq!((health.status, &health.json()["sealed"]), (200, &json!(false)));
}

#[tokio::test]
async fn a_token_is_accepted_in_each_header_and_must_be_unambiguous() {
    let world = World::start().await;
    let secret = world.server.login("principal", &world.jwt()).await.secret();
    let bearer = format!("Bearer {secret}");
    let read = async |headers: &[(&str, &str)], query: &str| {
        world.server.send("GET", &format!("/v1/acl/token/self{query}"), headers, b"").await.status
    };
    for name in ["X-Service-Token", "X-Consul-Token", "X-Vault-Token"] {
        assert_eq!(read(&[(name, &secret)], "").await, 200, "{name}");
    }
    assert_eq!(read(&[("Authorization", &bearer)], "").await, 200);
    assert_eq!(read(&[], &format!("?token={secret}")).await, 200);
    // UUIDs are case-insensitive.
    assert_eq!(read(&[("X-Service-Token", &secret.to_uppercase())], "").await, 200);
    assert_eq!(world.server.look_up(&secret.to_uppercase()).await.status, 200);
    assert_eq!(read(&[("X-Service-Token", &secret), ("X-Consul-Token", "other")], "").await, 400);
    assert_eq!(read(&[("X-Service-Token", "\u{e9}")], "").await, 400);
    for wrong in ["", "x", "00000000-0000-0000-0000-000000000000", &secret[1..], "a/../b"] {
        assert_eq!(read(&[("X-Service-Token", wrong)], "").await, 404, "{wrong}");
        let looked_up = world.server.look_up(wrong).await;
        assert_eq!(
            (looked_up.status, looked_up.error().as_str()),
            (403, "permission denied: invalid token"),
            "{wrong}"
        );
        let revoke = world.server.send("POST", "/v1/auth/token/revoke-self", &[("X-Vault-Token", wrong)], b"").await;
        assert_eq!(revoke.status, 403);
        let renew = world.server.send("POST", "/v1/auth/token/renew-self", &[("X-Vault-Token", wrong)], b"").await;
        assert_eq!(renew.status, 403);
    }
    let lookup = async |path: &str| world.server.send("GET", path, &[], b"").await.status;
    assert_eq!(lookup(&format!("/v1/auth/token/lookup-self?token={secret}")).await, 403);
}
