use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request};
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
    TokenHeader::new(Arc::new(token))
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
    // The server gets the namespace that the rules saw, in the header that it reads.
    check(Keyward, "X-Consul-Namespace: other", true, false, "x-service-namespace=other x-service-token=ours");
    check(Consul, "X-Service-Namespace: other", true, false, "x-consul-namespace=other x-consul-token=ours");
    check(Consul, "X-Consul-Namespace: |X-Service-Namespace: b", false, false, "x-consul-namespace=b");
    check(Consul, "X-Consul-Namespace: ", true, false, "x-consul-namespace=team x-consul-token=ours");
    check(Vault, "X-Vault-Namespace: ", true, false, "x-vault-namespace= x-vault-token=ours");
    check(Vault, "X-Vault-Inline-Auth-Path: a/login", true, false, "x-vault-namespace=team x-vault-token=ours");
    check(
        Vault,
        "X-Vault-Inline-Auth-Path: a/login|X-HTTP-Method-Override: DELETE|X-Original-URL: /v1/b|X-Mine: 1",
        false,
        false,
        "x-mine=1 x-vault-inline-auth-path=a/login x-vault-namespace=team",
    );
}

#[test]
fn a_namespace_is_read_as_the_server_reads_it() {
    let check = |kind, given: &[(&'static str, &'static str)], query: &str, expected: Result<Option<&str>, ()>| {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let dialect =
            ServerDialect::new(kind, String::new(), HeaderValue::from_static("a"), String::new(), Some("Team"));
        let query = Query::parse(Some(query)).unwrap();
        let found = dialect.named_namespace(&RequestHeaders::parse(kind, &headers), query);
        assert_eq!(found.as_ref().map(Option::as_deref).map_err(drop), expected, "{given:?} {query:?}");
        assert_eq!(dialect.session_namespace(), if kind == Vault { "Team" } else { "team" });
    };
    let (consul, service) = ("x-consul-namespace", "x-service-namespace");
    for kind in [Consul, Keyward] {
        check(kind, &[(consul, "other")], "ns=", Ok(Some("other")));
        check(kind, &[(consul, "OTHER")], "", Ok(Some("other")));
        check(kind, &[(consul, "other")], "ns=Team", Ok(Some("team")));
        check(kind, &[(consul, ""), (service, "b")], "ns", Ok(Some("b")));
        check(kind, &[(consul, "")], "", Ok(None));
        check(kind, &[(consul, "root")], "", Ok(Some("root")));
        check(kind, &[], "ns=*", Ok(Some("*")));
        check(kind, &[(consul, ""), (consul, "b")], "", Err(()));
        check(kind, &[(consul, "a"), (service, "b")], "", Err(()));
        check(kind, &[], "ns=&ns=a", Err(()));
        check(kind, &[], "ns=a%2Fb", Err(()));
    }
    check(Vault, &[("x-vault-namespace", "")], "ns=a", Ok(Some("")));
    check(Vault, &[("x-vault-namespace", "Team/")], "", Ok(Some("Team")));
}

#[test]
fn requests_that_lead_out_of_the_servers_own_datacenter_are_told() {
    let check = |kind, header: Option<&'static str>, query: &str, expected: bool| {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.append("x-consul-partition", HeaderValue::from_static(value));
        }
        let dialect = ServerDialect::new(kind, String::new(), HeaderValue::from_static("a"), String::new(), None);
        let query = Query::parse(Some(query)).unwrap();
        let found = dialect.leads_elsewhere(&RequestHeaders::parse(kind, &headers), query);
        assert_eq!(found, expected, "{header:?} {query:?}");
    };
    check(Consul, None, "dc=&partition=&ns=a", false);
    check(Consul, Some(""), "", false);
    for query in ["dc=dc2", "partition=default", "%64c=dc2", "a=1&dc=&dc=b", "peer=b"] {
        check(Consul, None, query, true);
        check(Keyward, None, query, false);
    }
    check(Consul, Some("web"), "", true);
}
