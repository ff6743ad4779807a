mod fallbacks;
mod reference;

use super::*;

/// Rules of policies, each with its namespace.
type Policies<'a> = &'a [(&'a str, &'a str)];

/// A resource by its name.
type ResourceByName = fn(&'static str) -> Resource<'static>;

fn grants(own: &str, direct: Policies<'_>, defaults: Policies<'_>, default_policy: DefaultPolicy) -> Grants {
    let policy = |policies: Policies<'_>| {
        let one = |(number, (namespace, text)): (usize, &(&str, &str))| {
            let id = PolicyId::Synthetic(number.to_string().into());
            PolicyInScope::new(namespace, id, Arc::new(Rules::parse(text).unwrap()))
        };
        policies.iter().enumerate().map(one).collect()
    };
    Grants { own_namespace: own.into(), direct: policy(direct), defaults: policy(defaults), default_policy }
}

/// Allowed accesses as letters: `rlw`, with `-` for denied ones.
fn may(grants: &Grants, resource: Resource<'_>, namespace: &str) -> String {
    let mark = |(access, mark)| if grants.decide(&resource, access, namespace).is_allowed() { mark } else { '-' };
    [(Access::Read, 'r'), (Access::List, 'l'), (Access::Write, 'w')].map(mark).into_iter().collect()
}

#[test]
fn levels_grant_their_access() {
    let check = |level: &str, expected: &str| {
        let text = format!("key \"a\" {{ policy = \"{level}\" }}");
        let grants = grants("default", &[("default", &text)], &[], DefaultPolicy::Allow);
        assert_eq!(may(&grants, Resource::Key("a"), "default"), expected, "{level}");
    };
    check("deny", "---");
    check("read", "r--");
    check("list", "rl-");
    check("write", "rlw");
}

#[test]
fn the_most_specific_rule_applies_and_among_equals_the_strongest_level() {
    let check = |policies: &[&str], expected: &[(&str, &str)]| {
        let policies: Vec<_> = policies.iter().map(|text| ("default", *text)).collect();
        let grants = grants("default", &policies, &[], DefaultPolicy::Deny);
        for (key, expected) in expected {
            assert_eq!(may(&grants, Resource::Key(key), "default"), *expected, "{policies:?} {key}");
        }
    };
    let write = "key \"a\" { policy = \"write\" } key_prefix \"b\" { policy = \"write\" }";
    let list = "key \"a\" { policy = \"list\" } key_prefix \"b\" { policy = \"list\" }";
    let read = "key \"a\" { policy = \"read\" } key_prefix \"b\" { policy = \"read\" }";
    let deny = "key \"a\" { policy = \"deny\" } key_prefix \"b\" { policy = \"deny\" }";
    check(&[read, list], &[("a", "rl-"), ("bc", "rl-"), ("c", "---")]);
    check(&[read, write, list], &[("a", "rlw"), ("b", "rlw")]);
    check(&[write, deny, list], &[("a", "---"), ("bc", "---")]);
    check(&[&format!("{write} {deny}")], &[("a", "---"), ("bc", "---")]);
    let nested = "key_prefix \"\" { policy = \"read\" } key_prefix \"a/\" { policy = \"deny\" } key_prefix \"a/b/\" \
                  { policy = \"write\" } key \"a/b/c\" { policy = \"list\" }";
    let expected =
        [("", "r--"), ("x", "r--"), ("a/", "---"), ("a/b", "---"), ("a/b/", "rlw"), ("a/b/d", "rlw"), ("a/b/c", "rl-")];
    check(&[nested], &expected);
    // Namespace specificity takes precedence over exact names, whichever policy a rule is from.
    check(
        &["key_prefix \"\" { policy = \"deny\" }", "key_prefix \"a\" { policy = \"read\" }"],
        &[("a", "r--"), ("b", "---")],
    );
    check(
        &["key_prefix \"a\" { policy = \"deny\" }", "key \"a\" { policy = \"read\" }"],
        &[("a", "r--"), ("ab", "---")],
    );
    check(&["key \"A\" { policy = \"read\" }"], &[("a", "---"), ("A", "r--")]);
}

#[test]
fn each_kind_has_its_own_rules() {
    let kinds: [(&str, ResourceByName); 8] = [
        ("agent", Resource::Agent),
        ("event", Resource::Event),
        ("identity", Resource::Identity),
        ("key", Resource::Key),
        ("node", Resource::Node),
        ("query", Resource::Query),
        ("service", Resource::Service),
        ("session", Resource::Session),
    ];
    for (kind, _) in kinds {
        let text = format!("{kind} \"a\" {{ policy = \"write\" }} {kind}_prefix \"b\" {{ policy = \"read\" }}");
        let grants = grants("default", &[("default", &text)], &[], DefaultPolicy::Deny);
        for (other, resource) in kinds {
            let same = kind == other;
            assert_eq!(may(&grants, resource("a"), "default"), if same { "rlw" } else { "---" }, "{kind} {other}");
            assert_eq!(may(&grants, resource("bc"), "default"), if same { "r--" } else { "---" }, "{kind} {other}");
        }
        assert_eq!(may(&grants, Resource::Acl, "default"), "---");
    }
}

#[test]
fn intentions_decide_who_may_connect_and_default_to_the_service_level() {
    let check = |block: &str, expected: &str| {
        let text = format!("service_prefix \"w\" {{ {block} }}");
        let grants = grants("default", &[("default", &text)], &[], DefaultPolicy::Deny);
        assert_eq!(may(&grants, Resource::Intention("web"), "default"), expected, "{block}");
    };
    check("policy = \"write\"", "r--");
    check("policy = \"read\"", "r--");
    check("policy = \"deny\"", "---");
    check("policy = \"read\" intentions = \"write\"", "rlw");
    check("policy = \"write\" intentions = \"deny\"", "---");
}

#[test]
fn only_policies_of_default_grant_global_resources() {
    let all = "acl = \"write\" operator = \"write\" keyring = \"read\" mesh = \"write\" partition \"default\" { peering = \"read\" }";
    let owns = [Resource::Operator, Resource::Keyring, Resource::Mesh, Resource::Peering];
    let check = |own: &str, direct: Policies<'_>, defaults: Policies<'_>, expected: [&str; 4]| {
        let grants = grants(own, direct, defaults, DefaultPolicy::Deny);
        // These resources are not namespaced: the named namespace has no effect.
        for namespace in ["default", "team", "other"] {
            assert_eq!(owns.map(|resource| may(&grants, resource, namespace)), expected, "{own} {namespace}");
        }
    };
    check("default", &[("default", all)], &[], ["rlw", "r--", "rlw", "r--"]);
    check("team", &[("team", all)], &[], ["---"; 4]);
    check("team", &[], &[("default", all)], ["rlw", "r--", "rlw", "r--"]);
    let deny = "operator = \"deny\" keyring = \"deny\" mesh = \"deny\" peering = \"deny\"";
    check("default", &[("default", all), ("default", deny)], &[], ["---"; 4]);
    check("team", &[("team", deny)], &[("default", all)], ["---"; 4]);
}

#[test]
fn rules_apply_in_the_namespace_of_the_token_or_in_the_named_one() {
    let check = |own: &str, policies: Policies<'_>, expected: &[(&str, &str)]| {
        let grants = grants(own, policies, &[], DefaultPolicy::Deny);
        for (namespace, expected) in expected {
            assert_eq!(may(&grants, Resource::Acl, namespace), *expected, "{own} {policies:?} {namespace}");
        }
    };
    let plain = "acl = \"write\"";
    check("default", &[("default", plain)], &[("default", "rlw"), ("team", "---")]);
    check("team", &[("team", plain)], &[("default", "---"), ("team", "rlw"), ("other", "---")]);
    let named = "namespace \"TEAM\" { acl = \"write\" } namespace_prefix \"Te\" { acl = \"read\" }";
    check(
        "default",
        &[("default", named)],
        &[("default", "---"), ("team", "rlw"), ("tea", "r--"), ("te", "r--"), ("t", "---")],
    );
    // Only policies of `default` apply to other namespaces.
    check("team", &[("team", named)], &[("team", "---"), ("tea", "---")]);
    let all = "namespace_prefix \"\" { acl = \"write\" }";
    let near = "namespace_prefix \"a\" { acl = \"read\" } namespace \"ab\" { acl = \"deny\" }";
    check(
        "default",
        &[("default", all), ("default", near)],
        &[("a", "r--"), ("ax", "r--"), ("ab", "---"), ("b", "rlw")],
    );
    // A more specific block without a matching rule falls back to the next.
    let silent = "namespace \"b\" { key \"k\" { policy = \"read\" } }";
    check("default", &[("default", all), ("default", silent)], &[("b", "rlw")]);
    // A rule outside all blocks is as specific as one in a block with the namespace's name.
    let outside = "acl = \"read\" namespace \"default\" { acl = \"write\" } namespace_prefix \"\" { acl = \"deny\" }";
    check("default", &[("default", outside)], &[("default", "rlw"), ("team", "---")]);
    let partition = "partition \"default\" { acl = \"read\" namespace \"a\" { acl = \"write\" } } partition_prefix \"de\" \
                     { namespace \"b\" { acl = \"read\" } } partition \"other\" { namespace \"c\" { acl = \"read\" } }";
    check("default", &[("default", partition)], &[("default", "r--"), ("a", "rlw"), ("b", "r--"), ("c", "---")]);
    check("team", &[("team", partition)], &[("team", "---"), ("a", "---")]);
}

#[test]
fn namespace_defaults_apply_where_no_direct_rule_matches() {
    let check = |direct: &str, default: &str, policy: DefaultPolicy, expected: &str| {
        let grants = grants("team", &[("team", direct)], &[("default", default)], policy);
        assert_eq!(may(&grants, Resource::Service("web"), "team"), expected, "{direct} {default} {policy:?}");
    };
    let deny = DefaultPolicy::Deny;
    let allow = DefaultPolicy::Allow;
    let read = "service \"web\" { policy = \"read\" }";
    let read_all = "service_prefix \"\" { policy = \"read\" }";
    let write = "service \"web\" { policy = \"write\" }";
    check(read, write, deny, "r--");
    check(read_all, write, deny, "r--");
    check("service \"web\" { policy = \"deny\" }", write, allow, "---");
    check("", write, deny, "rlw");
    check("service \"api\" { policy = \"read\" } node \"web\" { policy = \"deny\" }", write, deny, "rlw");
    check("", read, allow, "r--");
    check("", "", allow, "rlw");
    check("", "", deny, "---");
    // The policies are in `default`, but rules outside of blocks apply to the token's namespace.
    let grants = grants("team", &[], &[("default", "acl = \"read\" namespace \"other\" { acl = \"write\" }")], deny);
    assert_eq!(["team", "default", "other"].map(|name| may(&grants, Resource::Acl, name)), ["r--", "---", "rlw"]);
}

#[test]
fn the_default_policy_never_grants_acl() {
    for (own, namespace) in [("default", "default"), ("team", "other")] {
        let nothing = grants(own, &[], &[], DefaultPolicy::Allow);
        assert_eq!(may(&nothing, Resource::Acl, namespace), "---");
        for resource in [Resource::Operator, Resource::Namespace, Resource::Key("a"), Resource::Mesh] {
            assert_eq!(may(&nothing, resource, namespace), "rlw", "{resource:?}");
            assert_eq!(may(&grants(own, &[], &[], DefaultPolicy::Deny), resource, namespace), "---", "{resource:?}");
        }
    }
}

#[test]
fn a_namespace_is_visible_by_a_rule_about_it_and_not_by_access_inside_it() {
    let check = |own: &str, policies: Policies<'_>, expected: &[(&str, &str)]| {
        let grants = grants(own, policies, &[], DefaultPolicy::Deny);
        for (namespace, expected) in expected {
            assert_eq!(may(&grants, Resource::Namespace, namespace), *expected, "{policies:?} {namespace}");
        }
    };
    check("default", &[("default", "operator = \"read\"")], &[("default", "rl-"), ("team", "rl-")]);
    check("default", &[("default", "operator = \"write\"")], &[("default", "rlw"), ("team", "rlw")]);
    check("default", &[("default", "acl = \"read\"")], &[("default", "---"), ("team", "---")]);
    check("team", &[("team", "node_prefix \"\" { policy = \"read\" }")], &[("default", "---"), ("team", "---")]);
    check("team", &[("team", "node_prefix \"\" { policy = \"deny\" } acl = \"deny\"")], &[("team", "---")]);
    check(
        "default",
        &[("default", "namespace_prefix \"t\" { key \"a\" { policy = \"list\" } policy = \"read\" }")],
        &[("team", "rl-"), ("a", "---")],
    );
    // A rule about the namespace itself grants nothing inside it, and writing it needs `operator`.
    let itself = "namespace \"team\" { policy = \"write\" } namespace_prefix \"\" { policy = \"read\" }";
    check("default", &[("default", itself)], &[("team", "rl-"), ("other", "rl-")]);
    let grants = grants("default", &[("default", itself)], &[], DefaultPolicy::Deny);
    assert_eq!(may(&grants, Resource::Acl, "team"), "---");
    assert_eq!(may(&grants, Resource::Key("a"), "team"), "---");
    check("default", &[("default", "namespace \"team\" { policy = \"deny\" acl = \"read\" }")], &[("team", "---")]);
    let twice = "namespace \"team\" { policy = \"read\" } namespace \"team\" { policy = \"deny\" acl = \"read\" }";
    check("default", &[("default", twice)], &[("team", "---")]);
    check("default", &[("default", "partition \"default\" { policy = \"write\" }")], &[("default", "---")]);
    // A deny rule of one policy overrides another's grant.
    let denied = "namespace \"team\" { policy = \"deny\" }";
    for allowed in ["namespace \"team\" { policy = \"read\" }", "namespace_prefix \"\" { policy = \"write\" }"] {
        check("default", &[("default", allowed), ("default", denied)], &[("team", "---")]);
    }
}

#[test]
fn an_explanation_names_the_deciding_rule_and_its_policy() {
    let direct: Policies<'_> = &[
        ("default", r#"key_prefix "app/" { policy = "read" } key "app/one" { policy = "write" } operator = "read""#),
        (
            "default",
            r#"key "app/one" { policy = "write" } namespace_prefix "te" { service_prefix "" { policy = "read" intentions = "deny" } }"#,
        ),
        ("default", r#"key_prefix "app/sec" { policy = "deny" } namespace "team" { policy = "read" }"#),
    ];
    let defaults: Policies<'_> = &[("default", r#"node "a" { policy = "write" }"#)];
    let grants = grants("default", direct, defaults, DefaultPolicy::Deny);
    let check =
        |resource: Resource<'_>, access, namespace: &str, expected: (bool, Result<(&str, bool, &str), Reason>)| {
            let explained = grants.explain(&resource, access, namespace);
            let reason = match &explained.reason {
                Reason::Rule(policy) => Ok((policy.id.to_string(), policy.from_defaults, policy.rule.clone())),
                other => Err(other.clone()),
            };
            let expected_reason = expected.1.map(|(id, defaults, rule)| (id.to_owned(), defaults, rule.to_owned()));
            assert_eq!(
                (explained.decision.is_allowed(), reason),
                (expected.0, expected_reason),
                "{resource:?} in {namespace}"
            );
        };
    let own = "default";
    check(
        Resource::Key("app/x"),
        Access::Read,
        own,
        (true, Ok(("0", false, r#"key_prefix "app/" { policy = "read" }"#))),
    );
    check(
        Resource::Key("app/x"),
        Access::Write,
        own,
        (false, Ok(("0", false, r#"key_prefix "app/" { policy = "read" }"#))),
    );
    check(
        Resource::Key("app/one"),
        Access::Write,
        own,
        (true, Ok(("0", false, r#"key "app/one" { policy = "write" }"#))),
    );
    let denied = r#"key_prefix "app/sec" { policy = "deny" }"#;
    check(Resource::Key("app/secret"), Access::Read, own, (false, Ok(("2", false, denied))));
    check(Resource::Node("a"), Access::Read, own, (true, Ok(("0", true, r#"node "a" { policy = "write" }"#))));
    check(Resource::Node("b"), Access::Read, own, (false, Err(Reason::DefaultPolicy)));
    check(Resource::Acl, Access::Read, own, (false, Err(Reason::NoAclRule)));
    check(Resource::Operator, Access::Write, own, (false, Ok(("0", false, r#"operator = "read""#))));
    check(Resource::Namespace, Access::Write, "team", (false, Ok(("0", false, r#"operator = "read""#))));
    let intentions = r#"namespace_prefix "te" { service_prefix "" { intentions = "deny" } }"#;
    check(Resource::Intention("web"), Access::Read, "team", (false, Ok(("1", false, intentions))));
}

#[test]
fn access_to_a_namespace_is_explained_by_its_policy() {
    let text = r#"namespace "open" { policy = "read" } namespace "used" { key "a" { policy = "read" } }"#;
    let grants = grants("default", &[("default", text)], &[], DefaultPolicy::Deny);
    let reason = |namespace: &str| grants.explain(&Resource::Namespace, Access::Read, namespace).reason;
    let Reason::Rule(policy) = reason("open") else { panic!("a rule") };
    assert_eq!(policy.rule, r#"namespace "open" { policy = "read" }"#);
    assert_eq!((reason("used"), reason("other")), (Reason::NoNamespaceRule, Reason::NoNamespaceRule));
}

#[test]
fn resources_are_parsed_by_consuls_names() {
    for (kind, expected) in [
        ("acl", Resource::Acl),
        ("operator", Resource::Operator),
        ("keyring", Resource::Keyring),
        ("mesh", Resource::Mesh),
        ("peering", Resource::Peering),
        ("namespace", Resource::Namespace),
        ("agent", Resource::Agent("a")),
        ("event", Resource::Event("a")),
        ("identity", Resource::Identity("a")),
        ("intention", Resource::Intention("a")),
        ("key", Resource::Key("a")),
        ("node", Resource::Node("a")),
        ("query", Resource::Query("a")),
        ("service", Resource::Service("a")),
        ("session", Resource::Session("a")),
    ] {
        assert_eq!(Resource::parse(kind, "a"), Some(expected), "{kind}");
    }
    assert_eq!(Resource::parse("", "a"), None);
    assert_eq!([DefaultPolicy::Deny, DefaultPolicy::Allow].map(DefaultPolicy::as_str), ["deny", "allow"]);
}

#[test]
fn defaults_of_a_namespace_do_not_override_a_rule_of_the_token_that_grants_nothing_there() {
    let defaults = "operator = \"write\" mesh = \"write\" namespace \"b\" { key_prefix \"\" { policy = \"write\" } }";
    let check = |direct: &str, operator: &str, key: &str| {
        let grants = grants("team", &[("team", direct)], &[("default", defaults)], DefaultPolicy::Deny);
        assert_eq!(may(&grants, Resource::Operator, "team"), operator, "{direct}");
        assert_eq!(may(&grants, Resource::Key("a"), "b"), key, "{direct}");
    };
    check("", "rlw", "rlw");
    check("operator = \"deny\"", "---", "rlw");
    check("operator = \"read\" namespace \"b\" { key \"a\" { policy = \"deny\" } }", "---", "---");
    check("namespace \"b\" { key \"other\" { policy = \"deny\" } }", "rlw", "rlw");
}
