//! Spellings of a request that a server reads as another one than a rule that looks at bytes.

use keyward_agent::api_proxy::{AllowedNamespaces, NamespacePattern, TokenMode};
use keyward_agent::server_client::ServerKind;

use crate::harness::raw::Raw;
use crate::harness::vault::{Proxied, rules};

/// Sends a request as it is written, with these lines after its own headers. Returns the status.
async fn ask(proxied: &Proxied, line: &str, headers: &str) -> u16 {
    let mut caller = Raw::tcp(proxied.address).await;
    let headers = if headers.is_empty() { String::new() } else { format!("\r\n{headers}") };
    let length = if line.starts_with("GET") { "" } else { "\r\nContent-Length: 0" };
    caller
        .ask(format!("{line} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true{length}{headers}\r\n\r\n"))
        .await
        .status
}

fn consul(allow: &'static [&'static str], deny: &'static [&'static str]) -> Proxied {
    Proxied::with(|options, upstream| {
        options.rules = rules(allow, deny, &[]);
        upstream.kind = ServerKind::Consul;
    })
}

#[tokio::test]
async fn a_namespace_of_consul_is_the_one_that_the_server_uses() {
    let proxied = consul(&[], &["other/acl/*", "namespace/other"]);
    for (line, headers) in [
        ("GET /v1/acl/roles?ns=other", ""),
        ("GET /v1/acl/roles?ns=", "X-Consul-Namespace: other"),
        ("GET /v1/acl/roles?ns", "X-Consul-Namespace: other"),
        ("GET /v1/acl/roles?ns=OTHER", ""),
        ("GET /v1/acl/roles", "X-Consul-Namespace: Other"),
        ("GET /v1/acl/roles", "X-Consul-Namespace: \r\nX-Service-Namespace: other"),
        ("GET /v1/acl/roles?ns=*", ""),
        ("PUT /v1/acl/login?authmethod-ns=other", ""),
        ("GET /v1/namespace/OTHER", ""),
    ] {
        assert_eq!(ask(&proxied, line, headers).await, 403, "{line} {headers}");
    }
    for line in ["GET /v1/acl/roles?ns=a/b", "GET /v1/acl/roles?ns=&ns=other"] {
        assert_eq!(ask(&proxied, line, "").await, 400, "{line}");
    }
    assert!(proxied.vault.requests().is_empty());
    assert_eq!(ask(&proxied, "GET /v1/acl/roles?ns=", "X-Service-Namespace: team").await, 200);
    let request = proxied.vault.last();
    assert_eq!((request.header("x-consul-namespace"), request.header("x-service-namespace")), ("team", ""));

    let allowed = consul(&["acl/*"], &[]);
    for line in ["GET /v1/acl/roles?ns=root", "GET /v1/acl/roles?ns=a", "GET /v1/acl/roles?ns=*"] {
        assert_eq!(ask(&allowed, line, "").await, 403, "{line}");
    }
    let limited = Proxied::with(|options, upstream| {
        options.namespaces = AllowedNamespaces::matching(vec![NamespacePattern::parse("Team").unwrap()]);
        upstream.kind = ServerKind::Keyward;
    });
    for (line, expected) in [
        ("GET /v1/acl/roles?ns=TEAM", 200),
        ("GET /v1/acl/roles?ns=*", 403),
        ("POST /v1/acl/login?ns=team&authmethod-ns=other", 403),
        ("POST /v1/acl/login?authmethod-ns=team", 200),
    ] {
        assert_eq!(ask(&limited, line, "").await, expected, "{line}");
    }
}

#[tokio::test]
async fn a_rule_is_not_passed_by_another_datacenter_or_partition_of_consul() {
    let proxied = consul(&[], &["acl/policies"]);
    for (line, headers) in [
        ("GET /v1/acl/roles?dc=two", ""),
        ("GET /v1/acl/roles?partition=two", ""),
        ("GET /v1/acl/roles", "X-Consul-Partition: two"),
        ("GET /v1/health/service/a?peer=b", ""),
    ] {
        assert_eq!(ask(&proxied, line, headers).await, 403, "{line} {headers}");
        assert_eq!(ask(&consul(&[], &[]), line, headers).await, 200, "no rule: {line} {headers}");
    }
    assert_eq!(ask(&proxied, "GET /v1/acl/roles?dc=&partition=", "X-Consul-Partition: ").await, 200);
    let server_of_one = Proxied::with(|options, upstream| {
        options.rules = rules(&[], &["acl/policies"], &[]);
        upstream.kind = ServerKind::Keyward;
    });
    assert_eq!(ask(&server_of_one, "GET /v1/acl/roles?partition=default&dc=dc1", "").await, 200);
}

#[tokio::test]
async fn a_denied_name_is_denied_as_vault_folds_it_and_by_post_and_put_alike() {
    let proxied = Proxied::with(|options, _| {
        let deny = ["sys/policies/acl/admin", "auth/+/role/web/*", "POST auth/+/users/*", "PUT secret/data/a"];
        options.rules = rules(&[], &deny, &[]);
    });
    for line in [
        "PUT /v1/sys/policies/acl/Admin",
        "GET /v1/sys/policies/acl/ADMI%4E",
        "POST /v1/auth/approle/role/Web/secret-id",
        "PUT /v1/auth/userpass/users/me/password",
        "POST /v1/secret/data/a",
    ] {
        assert_eq!(ask(&proxied, line, "").await, 403, "{line}");
    }
    for line in ["GET /v1/sys/policies/acl;x/admin", "GET /v1/secret/data/a;b", "GET /v1/secret/data/a%3bb"] {
        assert_eq!(ask(&proxied, line, "").await, 400, "{line}");
    }
    assert!(proxied.vault.requests().is_empty());
    assert_eq!(ask(&proxied, "DELETE /v1/secret/data/a", "").await, 200);
}

#[tokio::test]
async fn a_listener_without_logins_serves_none_of_the_ways_to_log_in() {
    let proxied = Proxied::with(|options, _| options.logins = false);
    let inline = "X-Vault-Inline-Auth-Path: auth/jwt/login\r\nX-Vault-Inline-Auth-Parameter-role: e30";
    for (line, headers) in [
        ("POST /v1/auth/team/role/azure/login", ""),
        ("POST /v1/auth/ldap/login/ou/me", ""),
        ("POST /v1/auth/oidc/oidc/auth_url", ""),
        ("GET /v1/auth/oidc/oidc/callback?code=1", ""),
        ("POST /v1/auth/jwt/oidc/poll", ""),
        ("POST /v1/auth/saml/callback", ""),
        ("POST /v1/auth/saml/token", ""),
        ("POST /v1/sys/mfa/validate", ""),
        ("GET /v1/secret/data/a", inline),
    ] {
        assert_eq!(ask(&proxied, line, headers).await, 403, "{line} {headers}");
    }
    assert!(proxied.vault.requests().is_empty());
    assert_eq!(ask(&proxied, "GET /v1/auth/kubernetes/role/token", "").await, 200);
}

#[tokio::test]
async fn a_login_in_headers_is_checked_like_a_request_of_its_own() {
    let proxied = Proxied::with(|options, _| {
        options.rules = rules(&["secret/*", "auth/jwt/login"], &[], &[]);
        options.namespaces = AllowedNamespaces::matching(vec![NamespacePattern::parse("root").unwrap()]);
    });
    let path = "X-Vault-Inline-Auth-Path:";
    for (headers, expected) in [
        (format!("{path} auth/jwt/login"), 200),
        (format!("{path} auth/other/login"), 403),
        (format!("{path} auth/jwt/login\r\nX-Vault-Inline-Auth-Namespace: other"), 403),
        (format!("{path} auth/jwt/login\r\n{path} auth/other/login"), 400),
        (format!("{path} auth/%6awt/login"), 400),
        ("X-Vault-Inline-Auth-Parameter-a: e30".to_owned(), 400),
    ] {
        assert_eq!(ask(&proxied, "GET /v1/secret/data/a", &headers).await, expected, "{headers}");
    }
    assert_eq!(proxied.vault.requests().len(), 1);
    assert_eq!(proxied.vault.last().token(), "", "the server refuses a token beside such a login");
    let always = Proxied::with(|options, _| options.token_mode = TokenMode::Always);
    assert_eq!(ask(&always, "GET /v1/secret/data/a", &format!("{path} auth/jwt/login")).await, 200);
    let request = always.vault.last();
    assert_eq!((request.token(), request.header("x-vault-inline-auth-path")), ("tok1", ""));
}

#[tokio::test]
async fn odd_spellings_of_a_protected_operation_do_not_reach_the_server() {
    let proxied = Proxied::start();
    for path in [
        "auth/token/create%23",
        "auth/token/create%20x",
        "auth/token/create%3Fpolicies=root",
        "auth/token/renew_self",
        "auth/Token/revoke-self",
        "sys/SEAL",
        "team/sys/wrapping%23/unwrap",
    ] {
        assert_eq!(ask(&proxied, &format!("POST /v1/{path}"), "").await, 403, "{path}");
    }
    assert!(proxied.vault.requests().is_empty());
    assert_eq!(ask(&proxied, "POST /v1/secret/data/renew_self", "").await, 200);
}

#[tokio::test]
async fn headers_that_give_a_request_another_method_or_path_are_not_forwarded() {
    let proxied = Proxied::start();
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"] {
        assert_eq!(ask(&proxied, "POST /v1/secret/data/a", &format!("{name}: DELETE")).await, 200);
        assert_eq!(proxied.vault.last().header(name), "", "{name}");
    }
}
