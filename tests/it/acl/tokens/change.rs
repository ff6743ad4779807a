//! Updating, cloning and deleting tokens.

use std::time::Duration;

use keyward_acl::model::timestamp::Timestamp;
use serde_json::{Value, json};

use super::{TOKEN, path_of, policy, secret_of};
use crate::harness::{Acl, Answer};

fn says(response: &Answer, status: u16, text: &str) {
    assert_eq!((response.status, response.text.as_str()), (status, text));
}

#[tokio::test]
async fn an_update_replaces_all_mutable_fields() {
    let acl = Acl::start().await;
    let (one, two) = (policy(&acl, "one", "").await, policy(&acl, "two", "").await);
    acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let body = json!({
        "Description": "before", "Policies": [{"Name": "one"}], "Roles": [{"Name": "r"}],
        "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}], "ServiceIdentities": [{"ServiceName": "web"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/dns"}],
    });
    let made = acl.make(TOKEN, body).await;
    let path = path_of(&made);
    let changed = json!({
        "Description": "after", "Policies": [{"ID": one["ID"]}, {"Name": "two"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/service", "TemplateVariables": {"name": "web"}}],
    });
    let updated = acl.make(&path, changed.clone()).await;
    assert_eq!(updated["Policies"], json!([{"ID": one["ID"], "Name": "one"}, {"ID": two["ID"], "Name": "two"}]));
    assert_eq!(
        (&updated["TemplatedPolicies"], &updated["Description"]),
        (&changed["TemplatedPolicies"], &json!("after"))
    );
    for cleared in ["Roles", "NodeIdentities", "ServiceIdentities"] {
        assert_eq!(updated.get(cleared), None);
    }
    for field in ["AccessorID", "SecretID", "CreateTime", "CreateIndex", "Local", "Namespace"] {
        assert_eq!(updated[field], made[field], "{field}");
    }
    assert!(updated["ModifyIndex"].as_u64() > made["ModifyIndex"].as_u64());
    assert_ne!(updated["Hash"], made["Hash"]);
    assert_eq!(acl.get(&path).await.json(), updated);
    let again = acl.make(&path, changed).await;
    assert!(
        again["ModifyIndex"].as_u64() > updated["ModifyIndex"].as_u64(),
        "a write is one even if it changes nothing"
    );
    assert_eq!(again["Hash"], updated["Hash"]);

    let unknown = acl.put(&path, json!({"Policies": [{"Name": "x"}]})).await;
    says(&unknown, 400, "No such ACL policy with name \"x\"");
    let reader = acl.token_with("acl = \"read\"").await;
    for (method, path) in [("PUT", path.clone()), ("PUT", format!("{path}/clone")), ("DELETE", path.clone())] {
        let refused = acl.call(method, &path, Some(&reader), Some(json!({}))).await;
        assert!(refused.status == 403 && refused.text.contains("lacks permission 'acl:write'"), "{refused:?}");
    }
    assert_eq!(acl.get(&path).await.json(), again);
}

#[tokio::test]
async fn a_token_read_can_be_written_back() {
    let acl = Acl::start().await;
    policy(&acl, "p", "").await;
    let body = json!({
        "Description": "d", "Policies": [{"Name": "p"}], "ExpirationTTL": "1h", "Local": true,
        "ServiceIdentities": [{"ServiceName": "web"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/node", "TemplateVariables": {"name": "n", "x": {"a": "b"}}}],
    });
    let made = acl.make(TOKEN, body).await;
    let path = path_of(&made);
    let reader = acl.token_with("acl = \"read\"").await;
    let hidden = acl.call("GET", &path, Some(&reader), None).await.json();
    let expanded = acl.get(&format!("{path}?expanded")).await.json();
    let mut with_method = made.clone();
    (with_method["AuthMethodNamespace"], with_method["AuthMethod"]) = (json!("default"), json!(""));
    for read in [made.clone(), hidden, expanded, with_method] {
        let mut written = acl.make(&path, read).await;
        assert!(written["ModifyIndex"].as_u64() > made["ModifyIndex"].as_u64());
        written["ModifyIndex"] = made["ModifyIndex"].clone();
        assert_eq!(written, made);
    }
    let anonymous = "/v1/acl/token/00000000-0000-0000-0000-000000000002";
    let mut read = acl.get(anonymous).await.json();
    read["Policies"] = json!([{"Name": "p"}]);
    acl.make(anonymous, read).await;
}

#[tokio::test]
async fn immutable_fields_of_a_token_cannot_change() {
    let acl = Acl::start().await;
    let local = acl.make(TOKEN, json!({"Local": true, "ExpirationTTL": "1h"})).await;
    let global = acl.make(TOKEN, json!({})).await;
    let other = "11111111-1111-1111-1111-111111111111";
    let accessor = |token: &Value| token["AccessorID"].as_str().unwrap().to_owned();
    let (a, b) = (accessor(&local), accessor(&global));
    let end = local["ExpirationTime"].as_str().unwrap();
    let later = end.parse::<Timestamp>().unwrap().after(Duration::from_nanos(1));
    for (token, body, text) in [
        (&global, json!({ "AccessorID": other }), "Token Accessor ID in URL and payload do not match".to_owned()),
        (&global, json!({ "SecretID": other }), "Changing a token's SecretID is not permitted".to_owned()),
        (&global, json!({"Local": true}), format!("Cannot toggle local mode of {b}")),
        (&local, json!({}), format!("Cannot toggle local mode of {a}")),
        (&global, json!({"AuthMethod": "m"}), format!("Cannot change AuthMethod of {b}")),
        (&global, json!({ "ExpirationTime": end }), format!("Cannot change expiration time of {b}")),
        (&global, json!({"ExpirationTTL": "5m"}), format!("Cannot change expiration time of {b}")),
        (
            &local,
            json!({"Local": true, "ExpirationTime": later.to_string()}),
            format!("Cannot change expiration time of {a}"),
        ),
        (&local, json!({"Local": true, "ExpirationTTL": "1h"}), format!("Cannot change expiration time of {a}")),
    ] {
        says(&acl.put(&path_of(token), body).await, 400, &text);
        assert_eq!(&acl.get(&path_of(token)).await.json(), token);
    }
    for body in [
        json!({"Local": true}),
        json!({"Local": true, "AccessorID": a.to_uppercase(), "SecretID": secret_of(&local).to_uppercase()}),
        json!({"Local": true, "SecretID": "", "ExpirationTime": end, "ExpirationTTL": "0s", "AuthMethod": ""}),
        json!({"Local": true, "ExpirationTime": end.replace('Z', "+00:00")}),
    ] {
        assert_eq!(acl.make(&path_of(&local), body).await["ExpirationTime"], json!(end));
    }
    let nobody = acl.put(&format!("{TOKEN}/{other}"), json!({})).await;
    says(&nobody, 404, &format!("Cannot find token \"{other}\""));
    acl.clock.set_wall_by(3600);
    let expired = acl.put(&path_of(&local), json!({"Local": true})).await;
    says(&expired, 404, &format!("Cannot find token \"{a}\""));
}

#[tokio::test]
async fn a_clone_has_the_rights_of_its_source() {
    let acl = Acl::start().await;
    policy(&acl, "p", "").await;
    acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let body = json!({
        "Description": "of the source", "Local": true, "ExpirationTTL": "2m",
        "Policies": [{"Name": "p"}], "Roles": [{"Name": "r"}], "ServiceIdentities": [{"ServiceName": "web"}],
        "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/dns"}],
    });
    let source = acl.make(TOKEN, body).await;
    let clone = format!("{}/clone", path_of(&source));
    for (body, description) in [
        (json!({}), "of the source"),
        (json!({"Description": ""}), "of the source"),
        (json!({"Description": "own", "Namespace": "DEFAULT"}), "own"),
        // Other fields of the body are ignored; the clone has the source's.
        (json!({"Description": "own", "Policies": [], "Local": false}), "own"),
    ] {
        let made = acl.make(&clone, body).await;
        assert_eq!(made["Description"], description);
        for copied in
            ["Policies", "Roles", "ServiceIdentities", "NodeIdentities", "TemplatedPolicies", "Local", "ExpirationTime"]
        {
            assert_eq!(made[copied], source[copied], "{copied}");
        }
        for own in ["AccessorID", "SecretID", "CreateTime", "CreateIndex"] {
            assert_ne!(made[own], source[own], "{own}");
        }
        let read = acl.call("GET", "/v1/acl/token/self", Some(secret_of(&made)), None).await;
        assert_eq!(read.json(), made);
    }
    says(&acl.put(&clone, json!({"Foo": 1})).await, 400, "Token decoding failed: json: unknown field \"Foo\"");
    says(&acl.send("PUT", &clone, &[], b"").await, 400, "Token decoding failed: EOF");
    let elsewhere = acl.put(&clone, json!({"Namespace": "other"})).await;
    says(&elsewhere, 404, "Namespace \"other\" does not exist");
    let conflict = acl.put(&format!("{clone}?ns=default"), json!({"Namespace": "other"})).await;
    says(&conflict, 400, "A clone is created in the namespace of its source token: default");

    let lost = "Requested token does not exist: ACL not found";
    says(&acl.put(&format!("{TOKEN}/11111111-1111-1111-1111-111111111111/clone"), json!({})).await, 404, lost);
    acl.clock.set_wall_by(90);
    let late = acl.put(&clone, json!({})).await;
    assert_eq!(late.status, 400);
    assert!(late.text.starts_with("ExpirationTime cannot be less than 1m0s in the future (was 29."), "{late:?}");
    acl.clock.set_wall_by(30);
    says(&acl.put(&clone, json!({})).await, 404, lost);
}

#[tokio::test]
async fn a_deleted_token_is_refused_at_once() {
    let acl = Acl::start().await;
    let made = acl.make(TOKEN, json!({"Policies": [{"Name": "global-management"}]})).await;
    let (path, secret) = (path_of(&made), secret_of(&made));
    assert_eq!(acl.call("GET", &path, Some(secret), None).await.status, 200);
    says(&acl.delete(&path).await, 200, "true");
    says(&acl.call("GET", "/v1/acl/tokens", Some(secret), None).await, 403, "ACL not found");
    says(&acl.get(&path).await, 404, "Requested token does not exist: ACL not found");
    says(&acl.delete(&path).await, 200, "false");
    // Its ids are free again.
    acl.make(TOKEN, json!({"AccessorID": made["AccessorID"], "SecretID": secret})).await;

    let own = path_of(&acl.get("/v1/acl/token/self").await.json());
    says(&acl.delete(&own).await, 400, "Deletion of the request's authorization token is not permitted");
    let anonymous = "/v1/acl/token/00000000-0000-0000-0000-000000000002";
    says(&acl.delete(anonymous).await, 400, "Delete operation not permitted on the anonymous token");
    assert_eq!(acl.get(&own).await.status, 200);
}

#[tokio::test]
async fn an_expired_token_can_be_deleted_until_the_sweep() {
    let acl = Acl::start().await;
    let [first, second] =
        [acl.make(TOKEN, json!({"ExpirationTTL": "1m"})).await, acl.make(TOKEN, json!({"ExpirationTTL": "1m"})).await];
    let lasting = acl.make(TOKEN, json!({"ExpirationTTL": "1h"})).await;
    // Moves the wall clock only: sweeps follow the elapsed time.
    acl.clock.set_wall_by(60);
    says(&acl.get(&path_of(&first)).await, 404, "Requested token does not exist: ACL not found");
    says(&acl.delete(&path_of(&first)).await, 200, "true");
    let again = json!({"AccessorID": second["AccessorID"]});
    says(&acl.put(TOKEN, again.clone()).await, 409, "Invalid Token: AccessorID is already in use");
    acl.clock.suspend(Duration::from_secs(61));
    while !acl.metrics.text().contains("keyward_acl_tokens_swept_total 1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    says(&acl.delete(&path_of(&second)).await, 200, "false");
    acl.make(TOKEN, again).await;
    assert_eq!(acl.get(&path_of(&lasting)).await.json(), lasting);
}

#[tokio::test]
async fn requests_without_a_token_have_the_rights_of_the_anonymous_token() {
    let acl = Acl::start().await;
    policy(&acl, "read", "acl = \"read\"").await;
    let anonymous = "/v1/acl/token/00000000-0000-0000-0000-000000000002";
    assert_eq!(acl.call("GET", "/v1/acl/tokens", None, None).await.status, 403);
    acl.make(anonymous, json!({"Policies": [{"Name": "read"}]})).await;
    assert_eq!(acl.call("GET", "/v1/acl/tokens", None, None).await.status, 200);
    acl.make(anonymous, json!({})).await;
    assert_eq!(acl.call("GET", "/v1/acl/tokens", None, None).await.status, 403);
}
