//! The response cache never changes a response.

use serde_json::{Value, json};

use crate::harness::Acl;

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn cached_responses_are_invalidated_by_each_relevant_change() {
    let acl = Acl::start().await;
    let policy = acl.make("/v1/acl/policy", json!({"Name": "before", "Rules": "acl = \"read\""})).await;
    let role = acl.make("/v1/acl/role", json!({"Name": "r", "Policies": [{"ID": policy["ID"]}]})).await;
    let created = acl.make("/v1/acl/token", json!({"Roles": [{"ID": role["ID"]}], "ExpirationTTL": "2m"})).await;
    let reader = acl.make("/v1/acl/token", json!({"Roles": [{"ID": role["ID"]}], "ExpirationTTL": "1m"})).await;
    let (path, reader) = (format!("/v1/acl/token/{}", text(&created["AccessorID"])), text(&reader["SecretID"]));
    let read = async |secret: &str, query: &str| {
        let responses = [
            acl.call("GET", &format!("{path}{query}"), Some(secret), None).await,
            acl.call("GET", &format!("{path}{query}"), Some(secret), None).await,
        ];
        let [first, second] = responses.map(|response| (response.status, response.text));
        assert_eq!(first, second);
        second
    };
    let field =
        |response: &(u16, String), name: &str| serde_json::from_str::<Value>(&response.1).unwrap()[name].clone();

    // Two callers, and two forms of one request.
    assert_eq!(field(&read(&acl.root, "").await, "SecretID"), created["SecretID"]);
    assert_eq!(field(&read(&reader, "").await, "SecretID"), "<hidden>");
    assert_eq!(read("nobody", "").await.0, 403);
    assert!(field(&read(&acl.root, "").await, "ExpandedPolicies").is_null());
    assert_eq!(field(&read(&acl.root, "?expanded=true").await, "ExpandedPolicies")[0]["Name"], "before");
    assert!(read(&acl.root, "?pretty").await.1.contains("\n    \""));
    assert_eq!(read(&acl.root, "?ns=nowhere").await.0, 404);

    // A record that the response only links.
    let renamed = json!({"Name": "after", "Rules": "acl = \"read\""});
    acl.call("PUT", &format!("/v1/acl/policy/{}", text(&policy["ID"])), Some(&acl.root), Some(renamed)).await;
    assert_eq!(field(&read(&acl.root, "?expanded=true").await, "ExpandedPolicies")[0]["Name"], "after");
    // Expiration of the caller's token and of the token shown, without a write.
    acl.clock.set_wall_by(61);
    assert_eq!(read(&reader, "").await.0, 403);
    assert_eq!(read(&acl.root, "").await.0, 200);
    acl.clock.set_wall_by(60);
    assert_eq!(read(&acl.root, "").await.0, 404);
}

#[tokio::test]
async fn revoked_rights_are_not_served_from_the_cache() {
    let acl = Acl::start().await;
    let rules = "acl = \"read\"\noperator = \"read\"";
    let policy = acl.make("/v1/acl/policy", json!({"Name": "p", "Rules": rules})).await;
    let token = acl.make("/v1/acl/token", json!({"Policies": [{"ID": policy["ID"]}]})).await;
    let secret = text(&token["SecretID"]);
    let status = async |path: &str| acl.call("GET", path, Some(&secret), None).await.status;
    let reads = ["/v1/acl/roles", "/v1/acl/policy/name/p", "/v1/acl/token/self", "/v1/namespace/default"];
    let paths =
        reads.map(|path| async { [acl.call("GET", path, Some(&acl.root), None).await.status, status(path).await] });
    for both in paths {
        assert_eq!(both.await, [200, 200]);
    }
    let path = format!("/v1/acl/policy/{}", text(&policy["ID"]));
    acl.call("PUT", &path, Some(&acl.root), Some(json!({"Name": "p", "Rules": ""}))).await;
    assert_eq!([status(reads[0]).await, status(reads[1]).await, status(reads[2]).await], [403, 403, 200]);
    let path = format!("/v1/acl/token/{}", text(&token["AccessorID"]));
    acl.call("DELETE", &path, Some(&acl.root), None).await;
    assert_eq!([status(reads[0]).await, status(reads[1]).await, status(reads[2]).await], [403, 403, 404]);
}
