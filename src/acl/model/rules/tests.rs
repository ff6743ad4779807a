use proptest::prelude::*;
use serde_json::json;

use super::parse::MAX_SIZE;
use super::*;

fn error_text(text: &str) -> String {
    Rules::parse(text).map_or_else(|error| error.to_string(), |_| "good".to_owned())
}

#[test]
fn hcl_and_json_rules_are_equivalent() {
    let hcl = Rules::parse(
        r#"
        acl = "write" operator = "read" keyring = "deny" mesh = "read" peering = "write"
        key "a" { policy = "read" }
        key_prefix "a/" { policy = "list" }
        service "web" { policy = "write" intentions = "read" }
        service_prefix "" { policy = "read" }
        namespace "Team" { policy = "read" acl = "read" node "n" { policy = "deny" } }
        namespace_prefix "x-" { session_prefix "" { policy = "write" } }
        partition "default" { mesh = "write" agent "a" { policy = "read" } namespace "b" { acl = "deny" } }
        "#,
    );
    let json = json!({
        "acl": "write", "operator": "read", "keyring": "deny", "mesh": "read", "peering": "write",
        "key": {"a": {"policy": "read"}},
        "key_prefix": [{"a/": [{"policy": "list"}]}],
        "service": {"web": {"policy": "write", "intentions": "read"}},
        "service_prefix": {"": {"policy": "read"}},
        "namespace": {"team": {"policy": "read", "acl": "read", "node": {"n": {"policy": "deny"}}}},
        "namespace_prefix": {"x-": {"session_prefix": {"": {"policy": "write"}}}},
        "partition": {"default": {"mesh": "write", "agent": {"a": {"policy": "read"}}, "namespace": {"b": {"acl": "deny"}}}},
    });
    assert_eq!(hcl, Rules::parse(&json.to_string()));
    assert_ne!(hcl, Rules::parse(""));
}

#[test]
fn empty_levels_set_no_rule() {
    for text in [
        "",
        "# nothing\n",
        "{}",
        "acl = \"\"",
        r#"{"acl": null, "operator": ""}"#,
        "partition \"other\" { acl = \"write\" }",
    ] {
        assert_eq!(Rules::parse(text), Ok(Rules::default()), "{text}");
    }
}

#[test]
fn every_resource_kind_accepts_its_levels() {
    for kind in ["key", "service", "node", "agent", "session", "event", "query", "identity"] {
        for suffix in ["", "_prefix"] {
            for level in ["deny", "read", "write", "list", "all", "Read", ""] {
                let text = format!("{kind}{suffix} \"x\" {{ policy = \"{level}\" }}");
                let good = ["deny", "read", "write"].contains(&level) || level == "list" && kind == "key";
                assert_eq!(Rules::parse(&text).is_ok(), good, "{text}: {}", error_text(&text));
                let nested = format!("namespace \"a\" {{ {text} }} partition_prefix \"\" {{ {text} }}");
                assert_eq!(Rules::parse(&nested).is_ok(), good, "{nested}");
            }
        }
    }
    for single in ["acl", "operator", "keyring", "mesh", "peering"] {
        for level in ["deny", "read", "write", "list", "all"] {
            let text = format!("{single} = \"{level}\"");
            let good = ["deny", "read", "write"].contains(&level);
            assert_eq!(Rules::parse(&text).is_ok(), good, "{text}");
            let inner = |block: &str| Rules::parse(&format!("{block} \"a\" {{ {text} }}")).is_ok();
            assert_eq!(inner("namespace"), good && single == "acl", "{text}");
            assert_eq!(inner("partition"), good && !["operator", "keyring"].contains(&single), "{text}");
        }
    }
}

#[test]
fn invalid_rules_are_rejected_in_consuls_wording() {
    let check = |text: &str, expected: &str| assert_eq!(error_text(text), expected, "{text}");
    check("acl = \"x\"", "Invalid acl policy: \"x\" at line 1, column 7, expected \"deny\", \"read\" or \"write\"");
    check("acl = 1", "Invalid acl policy: a number at line 1, column 7, expected \"deny\", \"read\" or \"write\"");
    check(
        "\nkey \"a\" { policy = \"x\" }",
        "Invalid key policy: \"x\" at line 2, column 20, expected \"deny\", \"read\", \"list\" or \"write\"",
    );
    check(
        "key_prefix \"a\" {}",
        "Invalid key_prefix policy: \"\" at line 1, column 12, expected \"deny\", \"read\", \"list\" or \"write\"",
    );
    check(
        "service \"a\" { policy = \"read\" intentions = \"list\" }",
        "Invalid service intentions policy: \"list\" at line 1, column 44, expected \"deny\", \"read\" or \"write\"",
    );
    check(
        "service \"a\" {",
        "Failed to parse ACL rules: line 1, column 14: expected `}` for the block opened at line 1, \
         column 13, found the end",
    );
    check(
        "service { policy = \"read\" }",
        "Failed to parse ACL rules: line 1, column 20: expected a block such as service \"NAME\" \
         { policy = \"read\" }, found a string",
    );
    check(
        "service \"a\" { policy = \"read\" sentinel {} }",
        "Failed to parse ACL rules: line 1, column 31: expected `policy` or `intentions`, found the key \"sentinel\"",
    );
    check(
        "identity_prefix \"\" { policy = \"read\" intentions = \"list\" }",
        "Invalid identity_prefix intentions policy: \"list\" at line 1, column 51, expected \"deny\", \"read\" or \"write\"",
    );
    check(
        "key \"a\" { intentions = \"read\" }",
        "Failed to parse ACL rules: line 1, column 11: expected `policy`, found the key \"intentions\"",
    );
    check("acl = \"read\"\nacl = \"read\"", "Failed to parse ACL rules: line 2, column 1: duplicate key \"acl\"");
    check(
        "key \"a\" { policy = \"read\" policy = \"write\" }",
        "Failed to parse ACL rules: line 1, column 27: duplicate key \"policy\"",
    );
    for unknown in [
        "srvice \"a\" {}",
        "policy = \"read\"",
        "acl_prefix = \"read\"",
        "namespace \"a\" { namespace \"b\" {} }",
        "partition \"a\" { partition \"b\" {} }",
        "namespace \"a\" { operator = \"read\" }",
        "namespace \"a\" { mesh = \"read\" }",
    ] {
        let text = error_text(unknown);
        assert!(
            text.starts_with("Failed to parse ACL rules: line 1, column ") && text.contains(": unknown key \""),
            "{text}"
        );
        assert!(text.contains("known"), "{text}");
    }
    let long = format!("#{}", " ".repeat(MAX_SIZE));
    assert_eq!(error_text(&long), "Failed to parse ACL rules: 262145 bytes exceed the limit of 262144");
    assert_eq!(error_text(&long[1..]), "good");
}

#[test]
fn the_documented_rules_are_parsed() {
    let page = include_str!("../../../../docs/acl-rules.md");
    let blocks = page.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1);
    assert_eq!(blocks.map(|block| assert_eq!(error_text(block), "good", "{block}")).count(), 2);
}

proptest! {
    #[test]
    fn labels_are_found_as_a_naive_search_finds_them(
        labels in prop::collection::vec((any::<bool>(), "[aé]{0,4}|[a-c]{0,3}"), 0..12),
        exact: bool,
        name in "[aé]{0,5}|[a-c]{0,4}",
    ) {
        let mut all = Labels::default();
        for (is_exact, label) in &labels {
            all.add(*is_exact, label, label.clone(), |_, _| {});
        }
        let found: Vec<_> = all.matching(exact, &name).map(|(close, label)| (close, label.clone())).collect();
        let mut expected: Vec<_> = labels.iter().filter_map(|(is_exact, label)| match is_exact {
            true => (exact && *label == name).then(|| (Specificity::Exact, label.clone())),
            false => name.starts_with(label.as_str()).then(|| (Specificity::Prefix(label.len()), label.clone())),
        }).collect();
        expected.sort();
        expected.dedup();
        expected.reverse();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn an_identity_may_have_intentions_wherever_a_service_may() {
    let plain = |text: &str| Rules::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    for frame in ["{}", "namespace \"team\" { {} }", "partition \"default\" { {} }"] {
        let rule = |inner: &str| frame.replacen("{}", inner, 1);
        for name in ["identity \"web\"", "identity_prefix \"\""] {
            let with = rule(&format!("{name} {{ policy = \"read\" intentions = \"read\" }}"));
            let without = rule(&format!("{name} {{ policy = \"read\" }}"));
            assert_eq!(plain(&with), plain(&without), "{with}");
        }
        let service = rule("service_prefix \"\" { policy = \"read\" intentions = \"write\" }");
        assert_ne!(plain(&service), plain(&rule("service_prefix \"\" { policy = \"read\" }")), "{service}");
    }
    let json = r#"{"identity_prefix": {"": {"policy": "read", "intentions": "read"}}}"#;
    assert_eq!(plain(json), plain("identity_prefix \"\" { policy = \"read\" }"));
}
