//! Audit log of changes: caller, record and namespace of each, without secrets.

use serde_json::{Value, json};

use crate::harness::{Acl, log};

/// Returns operation, namespace, record and caller of the changes logged since the last call.
fn changes(line_count: &mut usize) -> Vec<(String, String, String, Option<String>)> {
    let lines = log::lines();
    let text = |line: &Value, name: &str| line["fields"][name].as_str().map(str::to_owned);
    let new = lines[*line_count..].iter().filter(|line| line["fields"]["event"] == "acl.changed").map(|line| {
        assert_eq!(line["level"], "INFO", "{line}");
        let must = |name: &str| text(line, name).unwrap_or_else(|| panic!("no {name} in {line}"));
        (must("operation"), must("namespace"), must("what"), text(line, "by"))
    });
    let new = new.collect();
    *line_count = lines.len();
    new
}

#[tokio::test]
async fn each_change_is_logged_in_one_line_without_secrets() {
    log::keep();
    let acl = Acl::start().await;
    let mut line_count = 0;
    let own = acl.get("/v1/acl/token/self").await.json()["AccessorID"].as_str().unwrap().to_owned();
    let first = [("bootstrap".to_owned(), "default".to_owned(), own.clone(), None)];
    assert_eq!(changes(&mut line_count), first);
    let mut check = |operation: &str, namespace: &str, what: &Value| {
        let what = what.as_str().unwrap().to_owned();
        let expected = (operation.to_owned(), namespace.to_owned(), what, Some(own.clone()));
        assert_eq!(changes(&mut line_count), [expected]);
    };
    let space = acl.make("/v1/namespace", json!({"Name": "Team"})).await;
    check("namespace.create", "Team", &space["Name"]);
    acl.make("/v1/namespace/Team", json!({"Description": "d"})).await;
    check("namespace.update", "Team", &space["Name"]);
    let policy = acl.make("/v1/acl/policy?ns=Team", json!({"Name": "p"})).await;
    check("policy.create", "Team", &policy["ID"]);
    let of_policy = format!("/v1/acl/policy/{}?ns=Team", policy["ID"].as_str().unwrap());
    acl.make(&of_policy, json!({"Name": "p"})).await;
    check("policy.update", "Team", &policy["ID"]);
    let role = acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    check("role.create", "default", &role["ID"]);
    let of_role = format!("/v1/acl/role/{}", role["ID"].as_str().unwrap());
    acl.make(&of_role, json!({"Name": "r"})).await;
    check("role.update", "default", &role["ID"]);
    let secret_id = "6a1253d2-1785-24fd-91c2-f8e78c745511";
    let token = acl.make("/v1/acl/token", json!({"SecretID": secret_id})).await;
    check("token.create", "default", &token["AccessorID"]);
    let of_token = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
    acl.make(&of_token, json!({"SecretID": secret_id})).await;
    check("token.update", "default", &token["AccessorID"]);
    let clone = acl.make(&format!("{of_token}/clone"), json!({})).await;
    check("token.clone", "default", &clone["AccessorID"]);
    let config = json!({"JWKSURL": "https://issuer.example/keys"});
    let method = acl.make("/v1/acl/auth-method", json!({"Name": "people", "Type": "jwt", "Config": config})).await;
    check("auth_method.create", "default", &method["Name"]);
    acl.make("/v1/acl/auth-method/people", json!({"Config": config})).await;
    check("auth_method.update", "default", &method["Name"]);
    let rule = json!({"AuthMethod": "people", "BindType": "service", "BindName": "web"});
    let rule = acl.make("/v1/acl/binding-rule", rule).await;
    check("binding_rule.create", "default", &rule["ID"]);
    let of_rule = format!("/v1/acl/binding-rule/{}", rule["ID"].as_str().unwrap());
    acl.make(&of_rule, json!({"BindType": "service", "BindName": "db"})).await;
    check("binding_rule.update", "default", &rule["ID"]);
    for (path, operation, namespace, what) in [
        (of_rule.as_str(), "binding_rule.delete", "default", &rule["ID"]),
        ("/v1/acl/auth-method/people", "auth_method.delete", "default", &method["Name"]),
        (&of_token, "token.delete", "default", &token["AccessorID"]),
        (&of_role, "role.delete", "default", &role["ID"]),
        (&of_policy, "policy.delete", "Team", &policy["ID"]),
        ("/v1/namespace/Team", "namespace.delete", "Team", &space["Name"]),
    ] {
        assert_eq!(acl.delete(path).await.status, 200);
        check(operation, namespace, what);
    }

    // Not logged: reads, refusals, authorization requests, deletions of absent records.
    let root = acl.root.clone();
    for path in [&of_token, &of_role] {
        assert_eq!(acl.delete(path).await.text, "false");
        assert_eq!(acl.get(&format!("{path}?token={root}")).await.status, 404);
    }
    assert_eq!(acl.call("PUT", "/v1/acl/role", Some(secret_id), Some(json!({"Name": "r"}))).await.status, 403);
    assert_eq!(acl.put("/v1/acl/role", json!({"Name": secret_id, "Foo": secret_id})).await.status, 400);
    assert_eq!(acl.put("/v1/acl/token", json!({"SecretID": root})).await.status, 409);
    let question = json!([{"Resource": "acl", "Access": "write"}]);
    assert_eq!(acl.call("POST", "/v1/internal/acl/authorize", Some(&root), Some(question)).await.status, 200);
    assert_eq!(changes(&mut line_count), []);
    let log = log::text();
    for secret in [root.as_str(), secret_id, clone["SecretID"].as_str().unwrap()] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    assert!(!log.contains("token="), "a query is in the log");
}
