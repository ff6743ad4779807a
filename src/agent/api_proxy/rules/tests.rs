use super::*;

fn rules(allow: &[&str], deny: &[&str], exempt: &[&str]) -> Rules {
    let rules = |patterns: &[&str]| patterns.iter().map(|pattern| Rule::parse(pattern).unwrap()).collect();
    let exempt = exempt.iter().map(|name| Exemption::parse(name).unwrap()).collect();
    Rules { allow: rules(allow), deny: rules(deny), exempt }
}

fn checked_path(rules: &Rules, request: &str) -> Result<(), RuleViolation> {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let operation = Operation::parse(&method.parse().unwrap(), Query::parse(query).unwrap()).unwrap();
    rules.check(operation, &ApiPath::parse(&format!("/v1/{path}")).unwrap())
}

#[test]
fn each_violation_has_the_name_of_its_setting() {
    let violations = [RuleViolation::NotAllowed, RuleViolation::Denied, RuleViolation::Protected("x")];
    assert_eq!(violations.map(RuleViolation::name), ["allow", "deny", "protected"]);
}

#[test]
fn a_request_passes_if_some_rule_allows_it_and_none_denies_it() {
    let check = |allow: &[&str], deny: &[&str], request: &str, expected| {
        assert_eq!(checked_path(&rules(allow, deny, &[]), request), expected, "{allow:?} {deny:?} {request}");
    };
    let allowed = Ok(());
    let denied = Err(RuleViolation::Denied);
    let not_allowed = Err(RuleViolation::NotAllowed);
    check(&[], &[], "DELETE secret/data/web", allowed);
    check(&["secret/data/web/*"], &[], "GET secret/data/web/a/b", allowed);
    check(&["secret/data/web/*"], &[], "GET secret/data/web", not_allowed);
    check(&["secret/data/web*"], &[], "GET secret/data/web-1/a", allowed);
    check(&["secret/*"], &[], "LIST secret/", allowed);
    check(&["secret/+/web"], &[], "GET secret/data/web", allowed);
    check(&["secret/+/web"], &[], "GET secret/data/more/web", not_allowed);
    check(&["secret/*"], &[], "GET secret/", allowed);
    check(&["secret/*"], &[], "LIST secret", allowed);
    check(&["*"], &["GET secret/*"], "PUT secret/a", allowed);
    check(&["GET,GET secret/*"], &[], "GET secret/a", allowed);
    check(&["secret/+/web*"], &[], "GET secret/data/other", not_allowed);
    check(&["secret/+"], &[], "LIST secret/", not_allowed);
    check(&["secret"], &[], "GET secret/a", not_allowed);
    check(&["secret"], &[], "LIST secret/a", not_allowed);
    check(&["secret"], &[], "LIST secret/", allowed);
    check(&["GET,LIST secret/*"], &[], "HEAD secret/a", not_allowed);
    check(&["GET,HEAD secret/*"], &[], "HEAD secret/a?list=true", allowed);
    check(&["secret/*"], &["GET secret/b"], "HEAD secret/b", denied);
    check(&["GET,LIST secret/*"], &[], "POST secret/a", not_allowed);
    check(&["GET secret/*"], &[], "GET secret/a?list=true", not_allowed);
    check(&["GET secret/*"], &[], "GET secret/a?%6cist=1", not_allowed);
    check(&["LIST secret/*"], &[], "GET secret/a?list=true", allowed);
    check(&["GET secret/*"], &[], "GET secret/a?list=false", allowed);
    check(&["*"], &["sys/*"], "GET sys/health", denied);
    check(&["*"], &["sys/*"], "GET team/web/sys/mounts", denied);
    check(&["*"], &["secret/*"], "LIST secret/", denied);
    check(&["*"], &["secret/*"], "LIST team/secret/", denied);
    check(&["*"], &["POST,PUT secret/*"], "GET secret/a", allowed);
    check(&["*"], &["POST,PUT secret/*"], "PUT secret/a", denied);
    check(&["*"], &["sys/seal"], "PUT sys/seal/", denied);
    check(&["*"], &["sys/seal"], "GET sys/seal-status", allowed);
    check(&["*"], &["sys/seal"], "PUT %73ys/seal", denied);
    check(&["*"], &["secret/data/a%20b", "kv/%c3%bc*"], "GET secret/data/a%20b", denied);
    check(&["*"], &["secret/data/a%20b", "kv/%c3%bc*"], "GET kv/%C3%BCn", denied);
    check(&["secret/%61"], &[], "GET secret/a", allowed);
    // Vault and OpenBao treat both alike.
    check(&["*"], &["POST secret/*"], "PUT secret/a", denied);
    check(&["*"], &["PUT secret/*"], "POST secret/a", denied);
    check(&["PUT secret/*"], &[], "POST secret/a", allowed);
    check(&["POST secret/*"], &[], "PATCH secret/a", not_allowed);
    check(&["*"], &["POST secret/*"], "DELETE secret/a", allowed);
    check(&["secret/%2b"], &[], "GET secret/a", not_allowed);
    check(&["secret/%2b"], &[], "GET secret/+", allowed);
}

#[test]
fn a_denied_name_is_denied_in_any_case_and_an_allowed_one_is_allowed_as_written() {
    let check = |allow: &[&str], deny: &[&str], request: &str, expected| {
        assert_eq!(checked_path(&rules(allow, deny, &[]), request), expected, "{allow:?} {deny:?} {request}");
    };
    let denied = Err(RuleViolation::Denied);
    for (deny, request) in [
        ("sys/policies/acl/admin", "PUT sys/policies/acl/Admin"),
        ("sys/policies/acl/Admin", "PUT sys/policies/acl/admin"),
        ("sys/policies/acl/admin*", "GET sys/policies/acl/ADMIN-2"),
        ("sys/policies/acl/kube", "PUT sys/policies/acl/%E2%84%AAUBE"),
        ("auth/userpass/users/boss/*", "POST auth/userpass/users/BOSS/password"),
        ("auth/approle/role/web/secret-id", "POST team/auth/approle/role/Web/secret-id"),
        ("auth/+/role/web", "POST auth/approle/role/WEB"),
        ("acl/token/6a1253d2-1785-24fd-91c2-f8e78c745511", "GET acl/token/6A1253D2-1785-24FD-91C2-F8E78C745511"),
        ("namespace/other", "GET namespace/OTHER"),
        ("other/acl/*", "LIST OTHER/acl"),
        // A list of all namespaces holds that of each.
        ("other/acl/*", "GET %2A/acl/tokens"),
        ("other/acl/tokens", "GET %2A/acl/tokens"),
    ] {
        check(&[], &[deny], request, denied);
    }
    check(&[], &["other/acl/policies"], "GET %2A/acl/tokens", Ok(()));
    check(&[], &["other"], "GET %2A/acl/tokens", Ok(()));
    check(&["auth/approle/role/web"], &[], "POST auth/approle/role/Web", Err(RuleViolation::NotAllowed));
}

#[test]
fn the_syntax_of_a_rule_is_checked() {
    for text in
        ["", "/secret/*", "v1/secret", "a//b", "a/*/b", "a/b*c", "GETS secret/*", "get secret/*", "a b c", "../a"]
            .into_iter()
            .chain(["a/%2e%2e/b", "a;b", "a%3bb", "a%2fb", "a%5cb", "a%0ab", "a%ff", "a/%2561", "a\\b"])
    {
        assert!(Rule::parse(text).is_err(), "{text:?}: {:?}", Rule::parse(text));
    }
    for text in ["GET secret/a b", "GET secret/a\u{7}b"] {
        assert_eq!(Rule::parse(text), Err("is not a path pattern"), "{text:?}");
    }
    for text in ["a//", "a//b", "a/./b", "a/..", "."] {
        assert_eq!(Rule::parse(text), Err("has an empty segment, or . or .."), "{text:?}");
    }
    let rule = Rule::parse("GET secret/+").unwrap();
    let none = Query::parse(None).unwrap();
    for (method, path, expected) in
        [("GET", "/v1/secret/a/", true), ("GET", "/v1/secret", false), ("PUT", "/v1/secret/a", false)]
    {
        let operation = Operation::parse(&method.parse().unwrap(), none).unwrap();
        assert_eq!(rule.matches_path(operation, &ApiPath::parse(path).unwrap()), expected, "{method} {path}");
    }
    for text in ["*", "secret/", "secret/*", "GET secret/+/a", "GET,LIST  secret/a*", "+"] {
        assert!(Rule::parse(text).is_ok(), "{text:?}: {:?}", Rule::parse(text));
    }
    for method in METHODS {
        let operation = Operation::parse(&method.parse().unwrap(), none).unwrap();
        let expected = (method == "GET", method == "HEAD", matches!(method, "LIST" | "SCAN"));
        assert_eq!((operation.is_read(), operation.is_head(), operation.is_list()), expected, "{method}");
    }
    for method in [Method::CONNECT, Method::OPTIONS] {
        assert_eq!(Operation::parse(&method, none), Err(OperationError::Method), "{method}");
    }
}

#[test]
fn protected_operations_are_refused_with_the_sessions_token_unless_exempt_by_name() {
    let check = |exempt: &[&str], path: &str, expected: Option<&'static str>| {
        let found = rules(&[], &[], exempt).check_session_token(&ApiPath::parse(&format!("/v1/{path}")).unwrap());
        assert_eq!(found, expected.map_or(Ok(()), |name| Err(RuleViolation::Protected(name))), "{exempt:?} {path}");
    };
    check(&[], "auth/token/create", Some("auth/token/create"));
    check(&[], "auth/token/create/", Some("auth/token/create"));
    check(&[], "auth/token/create/role", Some("auth/token/create"));
    check(&[], "auth/token/create-orphan", Some("auth/token/create"));
    check(&[], "auth/%74oken/create", Some("auth/token/create"));
    check(&[], "team/auth/token/create", Some("auth/token/create"));
    check(&[], "auth/token/renew-self", Some("auth/token/renew-self"));
    check(&[], "auth/token/revoke-self", Some("auth/token/revoke-self"));
    check(&[], "sys/seal", Some("sys/seal"));
    check(&[], "sys/raw/core/audit", Some("sys/raw"));
    check(&[], "sys/rotate/config", Some("sys/rotate"));
    check(&[], "sys/wrapping/unwrap", Some("sys/wrapping"));
    check(&[], "a/b/sys/wrapping/unwrap", Some("sys/wrapping"));
    check(&[], "acl/token/self", Some("acl/token"));
    check(&[], "acl/logout", Some("acl/logout"));
    check(&["auth/token/create"], "auth/token/create-orphan", None);
    check(&["auth/token/create*"], "auth/token/create", None);
    check(&["auth/token/create"], "auth/token/revoke-self", Some("auth/token/revoke-self"));
    check(&["sys/wrapping"], "sys/wrapping/unwrap", None);
    for odd in ["auth/token/create%23", "auth/token/create%20x", "auth/token/create%3Fa/b", "Auth/Token/Create"] {
        check(&[], odd, Some("auth/token/create"));
    }
    check(&[], "auth/token/renew_self", Some("auth/token/renew-self"));
    check(&[], "auth/token/revoke_self", Some("auth/token/revoke-self"));
    check(&[], "team/sys/SEAL", Some("sys/seal"));
    check(&[], "sys%23/raw/core", Some("sys/raw"));
    check(&["auth/token/create"], "auth/token/create%23", None);
    check(&[], "auth/token/lookup-self", None);
    check(&[], "auth/token/lookup", None);
    check(&[], "sys/seal-status", None);
    check(&[], "sys/health", None);
    check(&[], "secret/data/web", None);
    check(&[], "secret/data/sys/seal-it", None);
    assert_eq!(Exemption::parse("sys/mounts"), None);
    let named: Vec<_> = Exemption::names().map(|name| Exemption::parse(name).unwrap().name()).collect();
    assert_eq!(named, PROTECTED.map(|(name, _)| name));
    assert!(
        PROTECTED.iter().all(|(_, paths)| {
            paths.iter().all(|path| PROTECTED_SEGMENTS.contains(&path.split('/').next().unwrap()))
        })
    );
}
