use serde_json::json;

use super::*;

fn service(name: &str, datacenters: &[&str]) -> ServiceIdentity {
    let datacenters = datacenters.iter().map(ToString::to_string).collect();
    ServiceIdentity { service_name: name.to_owned(), datacenters }
}

#[test]
fn service_identities_of_one_name_become_one() {
    let check = |given: &[ServiceIdentity], expected: &[ServiceIdentity]| {
        assert_eq!(service_identities(given.to_vec(), LinkOwner::Role).as_deref(), Ok(expected));
    };
    check(&[service("a", &[]), service("a", &[])], &[service("a", &[])]);
    check(&[service("a", &["2", "3"]), service("a", &["1", "2"])], &[service("a", &["1", "2", "3"])]);
    check(&[service("a", &["2"]), service("a", &[])], &[service("a", &[])]);
    check(&[service("a", &[]), service("a", &["2"])], &[service("a", &[])]);
    check(&[service("b", &["2", "2"]), service("a", &[])], &[service("b", &["2"]), service("a", &[])]);
}

#[test]
fn variables_of_a_template_are_texts_or_maps() {
    let check = |variables: Value, refused: Option<&str>| {
        let policy = TemplatedPolicy {
            template_name: "builtin/service".to_owned(),
            template_variables: serde_json::from_value(variables.clone()).unwrap(),
            datacenters: Vec::new(),
        };
        let error = templated_policies(vec![policy]).err().map(|error| error.to_string());
        match refused {
            Some(text) => {
                assert!(error.as_ref().is_some_and(|error| error.contains(text)), "{variables} {error:?}");
            }
            None => assert_eq!(error, None, "{variables}"),
        }
    };
    check(json!({"name": "web", "other": "x", "map": {"a": {"b": "c"}, "none": null}}), None);
    check(json!({"name": "web", "Name": "web"}), None);
    check(json!({"name": "web", "Name": "db"}), Some("given twice"));
    let nested = |depth: usize| (0..depth).fold(json!("x"), |inner, _| json!({"a": inner}));
    check(json!({"name": "web", "other": nested(MAX_VARIABLE_DEPTH)}), None);
    for wrong in [nested(MAX_VARIABLE_DEPTH + 1), json!(5), json!(true), json!(["x"]), json!({"deep": {"er": 5}})] {
        check(json!({"name": "web", "other": wrong}), Some("variable \"other\" is neither"));
    }
}

#[test]
fn invalid_identities_are_rejected_in_consuls_wording() {
    let of_service =
        |given, local| service_identities(vec![given], LinkOwner::Token { local }).unwrap_err().to_string();
    assert_eq!(of_service(service("", &[]), false), "Service identity is missing the service name field on this token");
    assert!(
        of_service(service("FOO", &[]), false)
            .starts_with("Service identity \"FOO\" has an invalid name. Only lowercase")
    );
    assert!(of_service(service("a", &["1"]), true).ends_with("cannot specify a list of datacenters on a local token"));
    let of_node = |name: &str, datacenter: &str| {
        let node = NodeIdentity { node_name: name.to_owned(), datacenter: datacenter.to_owned() };
        node_identities(vec![node], LinkOwner::Role).unwrap_err().to_string()
    };
    assert_eq!(of_node("", "dc1"), "Node identity is missing the node name field on this role");
    assert_eq!(of_node("a", ""), "Node identity is missing the datacenter field on this role");
    assert!(of_node("foo.bar", "dc1").starts_with("Node identity has an invalid name. Only lowercase"));
}
