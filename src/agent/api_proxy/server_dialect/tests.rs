use std::sync::Arc;
use std::time::Duration;

use http::Request;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;

use super::*;
use crate::server_client::ServerKind::{Consul, Keyward, Vault};
use crate::token::{ClientToken, Generation, Lease, Token, TokenKind};

fn token() -> TokenHeader {
    let token = Token {
        secret: ClientToken::parse(SecretString::from("ours")).unwrap(),
        accessor: None,
        lease: Lease { ttl: Duration::from_mins(1), renewable: true },
        kind: TokenKind::Service,
        policies: Vec::new(),
        obtained: Clock::System.now(),
        expires: None,
        generation: Generation::new(),
    };
    TokenHeader { token: Arc::new(token), value: HeaderValue::from_static("ours") }
}

fn forwarded_headers(kind: ServerKind, given: &str, with_session: bool, has_listener_key: bool) -> String {
    let mut request = Request::get("/v1/a");
    for line in given.split('|').filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let dialect = ServerDialect::new(
        kind,
        "main".to_owned(),
        HeaderValue::from_static("vault:8200"),
        String::new(),
        Some("team"),
    );
    let token = token();
    let token = with_session.then_some(&token);
    let head = dialect.request_head(&parts, has_listener_key, false, token, &RequestBody::empty()).unwrap();
    let mut lines = head.lines().split_off(1);
    lines.retain(|line| {
        !["host: vault:8200", "x-vault-request: true", "accept-encoding: identity"].contains(&line.as_str())
    });
    lines.sort();
    lines.join(" ").replace(": ", "=")
}

#[test]
fn the_server_gets_one_token_and_never_the_listeners_key() {
    let check = |kind, given, session, listener_key, expected| {
        assert_eq!(forwarded_headers(kind, given, session, listener_key), expected, "{given}");
    };
    check(
        Vault,
        "X-Vault-Token: mine|Authorization: Bearer b|Expect: 100-continue",
        false,
        false,
        "authorization=Bearer b x-vault-namespace=team x-vault-token=mine",
    );
    check(
        Vault,
        "X-Vault-Token: mine|Authorization: Bearer b",
        true,
        false,
        "x-vault-namespace=team x-vault-token=ours",
    );
    check(Vault, "X-Vault-Token: key", true, true, "x-vault-namespace=team x-vault-token=ours");
    check(Vault, "X-Vault-Token: key", false, true, "x-vault-namespace=team");
    check(Vault, "X-Vault-Namespace: other", true, false, "x-vault-namespace=other x-vault-token=ours");
    check(Vault, "X-Vault-Namespace: other", false, false, "x-vault-namespace=other");
    check(
        Keyward,
        "X-Consul-Token: mine|X-Vault-Token: key",
        true,
        true,
        "x-service-namespace=team x-service-token=ours",
    );
    check(Consul, "X-Vault-Token: key", true, true, "x-consul-namespace=team x-consul-token=ours");
    check(
        Keyward,
        "X-Consul-Token: mine|X-Vault-Token: key",
        false,
        true,
        "x-consul-token=mine x-service-namespace=team",
    );
    check(Keyward, "X-Consul-Namespace: other", true, false, "x-consul-namespace=other x-service-token=ours");
}
