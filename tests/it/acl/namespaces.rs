//! Namespaces over HTTP.

use serde_json::{Value, json};

use crate::harness::Acl;

#[tokio::test]
async fn a_namespace_is_created_read_updated_and_written_back() {
    let acl = Acl::start().await;
    let made = acl.make("/v1/namespace", json!({"Name": "Team-1", "Meta": {"a": "b", "none": null}})).await;
    assert_eq!(
        (&made["Name"], &made["Meta"], &made["Partition"]),
        (&json!("Team-1"), &json!({"a": "b"}), &json!("default"))
    );
    assert!(made["CreateIndex"].as_u64() > Some(0) && made["CreateIndex"] == made["ModifyIndex"], "{made}");
    for absent in ["ACLs", "DeletedAt", "Description"] {
        assert!(made.get(absent).is_none(), "{absent} in {made}");
    }
    let read = acl.get("/v1/namespace/team-1").await;
    assert_eq!((read.status, read.json()), (200, made.clone()));

    let policy =
        acl.make("/v1/acl/policy", json!({"Name": "all", "Rules": "key_prefix \"\" { policy = \"write\" }"})).await;
    let role = acl.make("/v1/acl/role", json!({"Name": "some"})).await;
    let acls = json!({
        "PolicyDefaults": [{"Name": "all"}, {"ID": policy["ID"], "Name": "all"}],
        "RoleDefaults": [{"ID": role["ID"]}],
    });
    let update = json!({"Name": "team-1", "Description": "d", "ACLs": acls, "Partition": "default"});
    let changed = acl.make("/v1/namespace/TEAM-1", update).await;
    assert_eq!((&changed["Name"], &changed["Description"]), (&json!("Team-1"), &json!("d")));
    assert!(changed.get("Meta").is_none(), "an update replaces: {changed}");
    let linked = json!({
        "PolicyDefaults": [{"ID": policy["ID"], "Name": "all"}],
        "RoleDefaults": [{"ID": role["ID"], "Name": "some"}],
    });
    assert_eq!(changed["ACLs"], linked);
    assert!(changed["ModifyIndex"].as_u64() > made["ModifyIndex"].as_u64());
    assert_eq!(changed["CreateIndex"], made["CreateIndex"]);

    // A record can be written back as read, and shows the new name of a renamed default.
    acl.make(&format!("/v1/acl/role/{}", role["ID"].as_str().unwrap()), json!({"Name": "renamed"})).await;
    let read = acl.get("/v1/namespace/Team-1").await.json();
    assert_eq!(read["ACLs"]["RoleDefaults"], json!([{"ID": role["ID"], "Name": "renamed"}]));
    let mut sent = read.clone();
    sent["DeletedAt"] = Value::Null;
    sent["Hash"] = json!("x");
    let written = acl.make("/v1/namespace/team-1", sent).await;
    assert_eq!(written["ACLs"], read["ACLs"]);

    let listed = acl.get("/v1/namespaces").await;
    let names: Vec<Value> = listed.json().as_array().unwrap().iter().map(|one| one["Name"].clone()).collect();
    assert_eq!(names, ["default", "Team-1"]);
    assert_eq!(listed.json()[0]["Description"], "Builtin Default Namespace");
    assert_eq!(listed.json()[1], written);
    assert!(!listed.headers.contains_key("x-service-results-filtered-by-acls"));
}

#[tokio::test]
async fn namespace_defaults_are_returned_with_both_lists_even_if_empty() {
    let acl = Acl::start().await;
    let none = json!({"PolicyDefaults": [], "RoleDefaults": []});
    for (name, links) in [("a", json!({})), ("b", none.clone()), ("c", json!({"PolicyDefaults": null}))] {
        let made = acl.make("/v1/namespace", json!({"Name": name, "ACLs": links})).await;
        assert_eq!(made["ACLs"], none, "{made}");
        assert_eq!(acl.get(&format!("/v1/namespace/{name}")).await.json(), made);
        let listed = acl.get("/v1/namespaces").await.json();
        assert!(listed.as_array().unwrap().contains(&made), "{listed}");
    }
    acl.make("/v1/acl/role", json!({"Name": "some"})).await;
    let one = acl.make("/v1/namespace/a", json!({"ACLs": {"RoleDefaults": [{"Name": "some"}]}})).await;
    assert_eq!((&one["ACLs"]["PolicyDefaults"], &one["ACLs"]["RoleDefaults"][0]["Name"]), (&json!([]), &json!("some")));
    let cleared = acl.make("/v1/namespace/a", json!({})).await;
    assert!(cleared.get("ACLs").is_none(), "{cleared}");
}

#[tokio::test]
async fn removing_namespace_defaults_needs_more_than_operator_write() {
    let acl = Acl::start().await;
    acl.make("/v1/acl/policy", json!({"Name": "no-secrets", "Rules": "key_prefix \"s\" { policy = \"deny\" }"})).await;
    acl.make("/v1/acl/role", json!({"Name": "some"})).await;
    let acls = json!({"PolicyDefaults": [{"Name": "no-secrets"}], "RoleDefaults": [{"Name": "some"}]});
    let made = acl.make("/v1/namespace", json!({"Name": "team", "ACLs": acls})).await;
    let operator = acl.token_with("operator = \"write\"").await;
    for body in [
        json!({}),
        json!({"ACLs": {}}),
        json!({"ACLs": {"PolicyDefaults": []}}),
        json!({"ACLs": {"PolicyDefaults": [{"Name": "no-secrets"}]}}),
        json!({"Description": "d", "ACLs": acls}),
    ] {
        let refused = acl.call("PUT", "/v1/namespace/team", Some(&operator), Some(body.clone())).await;
        assert_eq!(refused.status, 403, "{body} {refused:?}");
        assert!(refused.text.contains("lacks permission 'acl:write'"), "{body} {refused:?}");
    }
    assert_eq!(acl.get("/v1/namespace/team").await.json(), made);
    // With both rights they are removed; afterwards the first alone is enough.
    let both = acl.token_with("operator = \"write\" acl = \"write\"").await;
    let cleared = acl.call("PUT", "/v1/namespace/team", Some(&both), Some(json!({}))).await;
    assert_eq!(cleared.status, 200, "{cleared:?}");
    let body = json!({"Description": "d", "ACLs": {}});
    assert_eq!(acl.call("PUT", "/v1/namespace/team", Some(&operator), Some(body)).await.status, 200);
}

#[tokio::test]
async fn invalid_namespaces_are_refused_with_the_reason() {
    let acl = Acl::start().await;
    acl.make("/v1/namespace", json!({"Name": "Team"})).await;
    let before = acl.get("/v1/namespaces").await;
    let check = async |method: &str, path: &str, body: Value, status: u16, text: &str| {
        let response = acl.call(method, path, Some(&acl.root), Some(body)).await;
        assert_eq!(response.status, status, "{path}: {response:?}");
        assert!(response.text.contains(text) && !response.text.contains('\n'), "{path}: {response:?}");
    };
    let label = "must be a valid DNS hostname label";
    let long = "x".repeat(64);
    check("PUT", "/v1/namespace", json!({}), 400, "Must specify a Name for Namespace creation").await;
    check("PUT", "/v1/namespace", json!({"Name": ""}), 400, "Must specify a Name").await;
    for name in ["a_b", "-a", "a.b", "*", "é", "a/b", &long] {
        check("PUT", "/v1/namespace", json!({"Name": name}), 400, label).await;
    }
    check("PUT", "/v1/namespace", json!({"Name": "tEAM"}), 409, "A Namespace with Name \"Team\" already exists").await;
    check("PUT", "/v1/namespace", json!({"Name": "Default"}), 409, "already exists").await;
    check("PUT", "/v1/namespace/team", json!({"Name": "other"}), 400, "do not match").await;
    check("PUT", "/v1/namespace/none", json!({}), 404, "Namespace \"none\" does not exist").await;
    check("PUT", "/v1/namespace/a_b", json!({}), 400, label).await;
    check("PUT", "/v1/namespace/", json!({"Name": "x"}), 400, "Missing namespace Name").await;
    check("GET", "/v1/namespace/", Value::Null, 400, "Missing namespace Name").await;
    check("GET", "/v1/namespace/none", Value::Null, 404, "Namespace \"none\" does not exist").await;
    check("DELETE", "/v1/namespace/none", Value::Null, 404, "Namespace \"none\" does not exist").await;
    check("DELETE", "/v1/namespace/DEFAULT", Value::Null, 400, "not permitted on the default namespace").await;
    let many: Value = (0..65).map(|number| (number.to_string(), json!(""))).collect::<serde_json::Map<_, _>>().into();
    check("PUT", "/v1/namespace", json!({"Name": "x", "Meta": many}), 400, "at most 64").await;
    check("PUT", "/v1/namespace", json!({"Name": "x", "Meta": {"a": 1}}), 400, "into field Meta of type string").await;
    check("PUT", "/v1/namespace", json!({"Name": "x", "Foo": 1}), 400, "unknown field \"Foo\"").await;
    check("PUT", "/v1/namespace", json!({"Name": "x", "ACLs": {"Foo": []}}), 400, "unknown field \"Foo\"").await;
    let none = json!({"PolicyDefaults": [{"Name": "none"}]});
    check("PUT", "/v1/namespace", json!({"Name": "x", "ACLs": none}), 400, "No such ACL policy with name \"none\"")
        .await;
    let none = json!({"RoleDefaults": [{"ID": "none"}]});
    check("PUT", "/v1/namespace", json!({"Name": "x", "ACLs": none}), 400, "No such ACL role with ID \"none\"").await;
    check("PUT", "/v1/namespace", json!({"Name": "x", "Partition": "p"}), 400, "Partition \"p\" does not exist").await;
    for (method, path) in [("GET", "/v1/namespaces"), ("GET", "/v1/namespace/team"), ("DELETE", "/v1/namespace/team")] {
        check(method, &format!("{path}?partition=p"), Value::Null, 404, "Partition \"p\" does not exist").await;
    }
    let after = acl.get("/v1/namespaces?partition=default").await;
    assert_eq!((after.text, &after.headers["x-service-index"]), (before.text, &before.headers["x-service-index"]));
}

#[tokio::test]
async fn a_read_in_a_missing_namespace_has_index_headers() {
    let acl = Acl::start().await;
    for path in ["acl/tokens", "acl/roles", "acl/policies", "acl/auth-methods", "acl/binding-rules", "acl/role/name/r"]
    {
        for query in ["", "&index=1&wait=60s"] {
            let missing = acl.get(&format!("/v1/{path}?ns=gone{query}")).await;
            assert_eq!((missing.status, missing.text.as_str()), (404, "Namespace \"gone\" does not exist"), "{path}");
            for name in ["x-consul-index", "x-service-index"] {
                assert_eq!(missing.headers[name], "1", "{path}{query}");
            }
        }
    }
    // The index does not hide what is there later.
    acl.make("/v1/namespace", json!({"Name": "gone"})).await;
    acl.make("/v1/acl/role", json!({"Name": "r", "Namespace": "gone"})).await;
    assert_eq!(acl.get("/v1/acl/roles?ns=gone&index=1&wait=60s").await.json()[0]["Name"], "r");
}

#[tokio::test]
async fn anonymous_callers_cannot_read_or_change_namespaces() {
    let acl = Acl::start().await;
    let listed = acl.call("GET", "/v1/namespaces", None, None).await;
    assert_eq!((listed.status, listed.text.as_str()), (200, "[]"));
    assert_eq!(listed.headers["x-service-results-filtered-by-acls"], "true");
    assert_eq!(listed.headers["x-consul-results-filtered-by-acls"], "true");
    let check = async |method: &str, path: &str, permission: &str| {
        let response = acl.call(method, path, None, Some(json!({"Name": "team"}))).await;
        let text = format!(
            "Permission denied: anonymous token lacks permission '{permission}'. The anonymous token is used implicitly when \
             a request does not specify a token."
        );
        assert_eq!((response.status, response.text), (403, text), "{method} {path}");
    };
    check("GET", "/v1/namespace/default", "operator:read").await;
    check("GET", "/v1/namespace/none", "operator:read").await;
    check("PUT", "/v1/namespace", "operator:write").await;
    check("PUT", "/v1/namespace/team", "operator:write").await;
    check("DELETE", "/v1/namespace/default", "operator:write").await;
    check("DELETE", "/v1/namespace/none", "operator:write").await;
}
