use serde_json::json;

use super::*;

fn claims() -> VerifiedClaims {
    let mut claims = VerifiedClaims::empty(["name", "org", "none"], ["groups"]);
    claims.values.insert("name".into(), Some("Jeff2".into()));
    claims.values.insert("org".into(), Some("Engineering".into()));
    claims
}

fn bind(kind: BindType, name: &str, vars: Value) -> Result<BindTarget, String> {
    let bind = Binding { kind, name: name.to_owned(), vars: serde_json::from_value(vars).unwrap() };
    bind.bind(&claims()).map_err(|error| error.to_string())
}

#[test]
fn placeholders_are_replaced_in_lower_case() {
    let check = |name: &str, expected: &str| {
        assert_eq!(bind(BindType::Service, name, Value::Null), Ok(BindTarget::Service(expected.to_owned())), "{name}");
    };
    check("web", "web");
    check("test--${value.name}--${value.org}", "test--jeff2--engineering");
    check("${ value.name }", "jeff2");
    check("${value.name}${value.name}", "jeff2jeff2");
    check("a${value.none}b", "ab");
    let fails = |name: &str, expected: &str| {
        let found = bind(BindType::Service, name, Value::Null).unwrap_err();
        assert!(found.contains(expected), "{name}: {found}");
    };
    fails("", "\"\" is not a valid name for this BindType");
    fails("${value.none}", "is not a valid name for this BindType");
    fails("a--${value.none}", "\"a--\" is not a valid name");
    fails("Web", "\"Web\" is not a valid name");
    fails("${value.name", "has a placeholder other than \"${value.NAME}\"");
    fails("${value.other}", "${value.other} is unknown; available: value.name, value.none, value.org, list.groups");
    fails("${list.groups}", "${list.groups} is unknown");
    fails("${}", "${} is unknown");
    fails("$${value.name}", "\"${value.name}\" is not a valid name");
    assert_eq!(bind(BindType::Role, "A_${value.name}", Value::Null), Ok(BindTarget::Role("A_jeff2".into())));
    let policy = bind(BindType::Policy, "builtin/global-read-only", Value::Null);
    assert_eq!(policy, Ok(BindTarget::Policy("builtin/global-read-only".into())));
    assert_eq!(bind(BindType::Policy, "a/b", Value::Null), Ok(BindTarget::Policy("a/b".into())));
    assert!(bind(BindType::Policy, "a/b/c", Value::Null).is_err());
    assert!(bind(BindType::Node, "a", json!({"Name": "b"})).unwrap_err().contains("BindVars"));
}

#[test]
fn a_template_is_bound_with_the_name_that_it_takes() {
    let template = |name: &str, vars: Value| bind(BindType::TemplatedPolicy, name, vars);
    let bound = |name: &str, value: Option<&str>| Ok(BindTarget::Template(name.into(), value.map(str::to_owned)));
    let named = json!({"Name": "web-${value.org}"});
    assert_eq!(template("builtin/service", named), bound("builtin/service", Some("web-engineering")));
    assert_eq!(template("builtin/node", json!({"name": "n"})), bound("builtin/node", Some("n")));
    assert_eq!(template("builtin/dns", Value::Null), bound("builtin/dns", None));
    assert_eq!(template("builtin/dns", json!({})), bound("builtin/dns", None));
    for (name, vars) in [
        ("builtin/dns", json!({"Name": "x"})),
        ("builtin/service", Value::Null),
        ("builtin/service", json!({"Name": 7})),
        ("builtin/service", json!({"Name": "x", "Other": "y"})),
        ("builtin/service", json!({"Other": "y"})),
    ] {
        assert!(template(name, vars.clone()).unwrap_err().contains("BindVars must be"), "{name} {vars}");
    }
    assert!(template("builtin/service", json!({"Name": "${value.none}"})).unwrap_err().contains("is not a valid name"));
    assert!(template("builtin/x", Value::Null).unwrap_err().contains("does not exist"));
    assert!(template("builtin/${value.name}", Value::Null).unwrap_err().contains("does not exist"));
}

#[test]
fn a_rule_is_validated_without_a_login() {
    let validate = |kind, name: &str| {
        let bind = Binding { kind, name: name.to_owned(), vars: None };
        bind.validate(&VerifiedClaims::empty(["name"], [])).map_err(|error| error.to_string())
    };
    assert_eq!(validate(BindType::Service, "${value.name}"), Ok(()));
    assert!(validate(BindType::Service, "-${value.name}").is_err());
    assert!(validate(BindType::Service, "${value.names}").is_err());
    assert!(BindType::parse("templated-policy").is_some() && BindType::parse("Service").is_none());
}
