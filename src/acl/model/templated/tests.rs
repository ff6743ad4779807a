use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::rules::Rules;

fn synthetic(template: &str, variables: Value) -> Result<SyntheticPolicy, TemplateError> {
    SyntheticPolicy::from_template(template, &serde_json::from_value(variables).unwrap(), &[])
}

#[test]
fn a_synthetic_policy_has_the_hash_of_consul() {
    let policy = synthetic("builtin/service", json!({"name": "web"})).unwrap();
    assert_eq!(policy.hash, "b04MnvCVtBXZAmGe4uDpGLABJoGo2nNhEJkqaN5E5x4=");
    assert!(policy.id.starts_with("0a73657276696365202277656222") && policy.id.ends_with(ID_SUFFIX));
    assert_eq!(policy.name, format!("synthetic-policy-{}", policy.id));
    let limited = SyntheticPolicy::from_service_identity("web", &["dc2".into()]).unwrap();
    assert_eq!((limited.rules, limited.id), (policy.rules, policy.id));
    assert_ne!(limited.hash, SyntheticPolicy::from_service_identity("web", &[]).unwrap().hash);
}

#[test]
fn every_template_renders_and_has_a_matching_schema() {
    for template in TEMPLATES {
        let policy = synthetic(template.name, json!({"name": "web", "other": {"a": "b"}})).unwrap();
        Rules::parse(&policy.rules).unwrap();
        assert!(!policy.rules.contains("{{"), "{}", template.name);
        let schema: Value = serde_json::from_str(template.schema).unwrap_or_default();
        assert_eq!(schema["required"] == json!(["name"]), template.requires_name(), "{}", template.name);
        assert_eq!(synthetic(template.name, json!({})).is_err(), template.requires_name(), "{}", template.name);
        assert_eq!(find(template.name), Some(&template));
    }
    assert_eq!(find("builtin/Service"), None);
    assert_eq!(synthetic("x", json!({})).unwrap_err().to_string(), "acl templated policy does not exist: \"x\"");
}

#[test]
fn a_name_that_would_leave_its_quotes_is_rejected() {
    let check = |variables: Value, expected: Option<&str>| {
        let found = synthetic("builtin/workload-identity", variables.clone()).ok().map(|policy| policy.rules);
        let rules = expected.map(|name| format!("\nidentity \"{name}\" {{\n\tpolicy = \"write\"\n}}"));
        assert_eq!(found, rules, "{variables}");
    };
    check(json!({"name": "web"}), Some("web"));
    check(json!({"Name": "web"}), Some("web"));
    check(json!({"name": "a b/c.é$"}), Some("a b/c.é$"));
    check(json!({"name": "x".repeat(256)}), Some(&"x".repeat(256)));
    for name in ["", "a\"", "\"{}acl=\"write\"", "a\\", "a\nb", "a\u{7f}", "${", "a${b}", &"x".repeat(257)] {
        check(json!({ "name": name }), None);
    }
    check(json!({"name": 5}), None);
    check(json!({"name": {"name": "web"}}), None);
    check(json!({"NAME": "web"}), None);
}

#[test]
fn a_link_to_the_template_of_a_service_or_node_has_the_name_of_an_identity() {
    let check = |template: &str, name: &str| {
        let variables = Map::from_iter([("name".to_owned(), json!(name))]);
        render_for_link(find(template).unwrap(), &variables).map_err(|error| error.to_string())
    };
    for template in ["builtin/service", "builtin/node"] {
        assert!(check(template, "web-1").is_ok());
        let error = check(template, "Web App*").unwrap_err();
        assert!(error.contains("\"Web App*\" has an invalid name. Only lowercase"), "{error}");
    }
    assert!(check("builtin/api-gateway", "Web App*").is_ok());
}

#[test]
fn an_identity_applies_in_its_datacenters_only() {
    let policy = SyntheticPolicy::from_service_identity("web", &["dc1".into(), "dc3".into()]).unwrap();
    assert_eq!(["dc1", "dc2", "dc3"].map(|here| policy.applies_in(here)), [true, false, true]);
    assert!(SyntheticPolicy::from_service_identity("web", &[]).unwrap().applies_in("dc9"));
    let node = SyntheticPolicy::from_node_identity("n1", "dc2").unwrap();
    assert_eq!(["dc1", "dc2"].map(|here| node.applies_in(here)), [false, true]);
    assert_eq!(node.description, "synthetic policy for node identity \"n1\"");
    assert_eq!(node.rules, synthetic("builtin/node", json!({"name": "n1"})).unwrap().rules);
}

proptest! {
    #[test]
    fn an_accepted_name_appears_unchanged_in_the_rules(name in "\\PC{0,8}[\"$\\\\{}a-z]{0,6}") {
        if let Ok(policy) = SyntheticPolicy::from_service_identity(&name, &[]) {
            let write = json!({"policy": "write"});
            let read = json!({"": {"policy": "read"}});
            let named = json!({&name: write, format!("{name}-sidecar-proxy"): write});
            let same = json!({"service": named, "service_prefix": read, "node_prefix": read}).to_string();
            prop_assert_eq!(Rules::parse(&policy.rules).unwrap(), Rules::parse(&same).unwrap());
        }
    }
}
