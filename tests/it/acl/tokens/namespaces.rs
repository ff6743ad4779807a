//! Tokens in several namespaces.

use serde_json::{Value, json};

use super::{TOKEN, path_of, policy, secret_of};
use crate::harness::Acl;

/// ACL server with a namespace `Team`, and the secret of a token with all rights in it.
async fn with_team() -> (Acl, String) {
    let acl = Acl::start().await;
    acl.make("/v1/namespace", json!({"Name": "Team"})).await;
    let rules = json!({"Name": "all", "Namespace": "team", "Rules": "acl = \"write\""});
    acl.make("/v1/acl/policy", rules).await;
    let own = acl.make(TOKEN, json!({"Namespace": "team", "Policies": [{"Name": "all"}]})).await;
    let secret = secret_of(&own).to_owned();
    (acl, secret)
}

#[tokio::test]
async fn body_query_and_header_set_the_namespace_of_a_token_in_this_order() {
    let (acl, own) = with_team().await;
    acl.make("/v1/namespace", json!({"Name": "two"})).await;
    let put = async |secret: &str, query: &str, header: &str, body: Value| {
        let headers = [("x-consul-token", secret), ("x-service-namespace", header)];
        let response = acl.send("PUT", &format!("{TOKEN}{query}"), &headers, body.to_string().as_bytes()).await;
        (
            response.status,
            if response.status == 200 { response.json()["Namespace"].clone() } else { json!(response.text) },
        )
    };
    let root = acl.root.as_str();
    assert_eq!(put(root, "?ns=two", "default", json!({"Namespace": "TEAM"})).await, (200, json!("Team")));
    assert_eq!(put(root, "?ns=two", "team", json!({"Namespace": ""})).await, (200, json!("two")));
    assert_eq!(put(root, "", "two", json!({})).await, (200, json!("two")));
    assert_eq!(put(&own, "", "", json!({})).await, (200, json!("Team")));
    assert_eq!(put(root, "", "", json!({})).await, (200, json!("default")));
    let (status, text) = put(&own, "?ns=two", "", json!({})).await;
    assert!(status == 403 && text.as_str().unwrap().contains("lacks permission 'acl:write'"), "{text}");
    assert_eq!(put(root, "?ns=none", "", json!({})).await, (404, json!("Namespace \"none\" does not exist")));
    assert_eq!(put(root, "?ns=*", "", json!({})).await.0, 400);
    assert_eq!(put(root, "", "", json!({"Namespace": "a_b"})).await.0, 400);
}

#[tokio::test]
async fn a_token_is_found_in_its_own_namespace_only() {
    let (acl, own) = with_team().await;
    let made = acl.make(&format!("{TOKEN}?ns=team"), json!({"Description": "d", "Policies": [{"Name": "all"}]})).await;
    let (path, accessor) = (path_of(&made), made["AccessorID"].as_str().unwrap());
    let there = format!("{path}?ns=tEAM");
    assert_eq!(acl.get(&path).await.status, 404);
    assert_eq!(acl.get(&there).await.json(), made);
    assert_eq!(acl.call("GET", &path, Some(&own), None).await.json(), made, "the caller's token says where");
    let lost = acl.put(&path, json!({})).await;
    assert_eq!((lost.status, lost.text), (404, format!("Cannot find token \"{accessor}\"")));
    assert_eq!(acl.put(&format!("{path}/clone"), json!({})).await.status, 404);
    assert_eq!(acl.delete(&path).await.text, "false");
    let taken = acl.put(TOKEN, json!({ "AccessorID": accessor })).await;
    assert_eq!((taken.status, taken.text.as_str()), (409, "Invalid Token: AccessorID is already in use"));

    let mut changed = made.clone();
    changed["Description"] = json!("changed");
    assert_eq!(acl.make(&path, changed.clone()).await["Description"], "changed", "its body says where");
    // The body of a clone names the source's namespace, or none.
    let clone = format!("{path}/clone?ns=team");
    assert_eq!(acl.make(&clone, json!({"Namespace": "team"})).await["Namespace"], "Team");
    let elsewhere = acl.put(&clone, json!({"Namespace": "default"})).await;
    assert_eq!(elsewhere.status, 400);
    // Without a namespace in query or header, the body's is that of source and clone.
    let by_body = acl.put(&format!("{path}/clone"), json!({"Namespace": "tEAM"})).await;
    assert_eq!((by_body.status, &by_body.json()["Namespace"]), (200, &json!("Team")), "{by_body:?}");
    let by_header = [("x-consul-token", acl.root.as_str()), ("x-consul-namespace", "team")];
    let body = json!({"Namespace": "default"}).to_string();
    let conflict = acl.send("PUT", &format!("{path}/clone"), &by_header, body.as_bytes()).await;
    assert_eq!(conflict.status, 400, "{conflict:?}");
    let mine = acl.call("PUT", &format!("{path}/clone"), Some(&own), Some(json!({}))).await.json();
    assert_eq!((&mine["Namespace"], &mine["Policies"]), (&json!("Team"), &made["Policies"]));
    assert_eq!(acl.delete(&there).await.text, "true");

    // Links resolve in the token's namespace.
    policy(&acl, "of-default", "").await;
    let response = acl.put(TOKEN, json!({"Namespace": "team", "Policies": [{"Name": "of-default"}]})).await;
    assert_eq!((response.status, response.text.as_str()), (400, "No such ACL policy with name \"of-default\""));
    let global = json!([{"ID": "00000000-0000-0000-0000-000000000001"}]);
    assert_eq!(acl.put(TOKEN, json!({"Namespace": "team", "Policies": global})).await.status, 400);
}

#[tokio::test]
async fn a_list_of_all_namespaces_is_filtered_by_the_rights_of_the_caller() {
    let (acl, own) = with_team().await;
    let count = async |secret: &str, query: &str| {
        let response = acl.call("GET", &format!("/v1/acl/tokens{query}"), Some(secret), None).await;
        let filtered = response.headers.contains_key("x-service-results-filtered-by-acls");
        assert_eq!(filtered, response.headers.contains_key("x-consul-results-filtered-by-acls"));
        let listed = response.json();
        let namespaces: Vec<String> =
            listed.as_array().unwrap().iter().map(|token| token["Namespace"].as_str().unwrap().to_owned()).collect();
        let hidden = listed.as_array().unwrap().iter().filter(|token| token["SecretID"] == "<hidden>").count();
        (namespaces.join(" "), hidden, filtered)
    };
    let both = "acl = \"read\" namespace \"team\" { acl = \"write\" }";
    let mixed = acl.token_with(both).await;
    let none = acl.token_with("operator = \"read\"").await;
    let check = async |secret: &str, query: &str, namespaces: &str, hidden: usize, filtered: bool| {
        assert_eq!(count(secret, query).await, (namespaces.to_owned(), hidden, filtered), "{query}");
    };
    check(&acl.root, "?ns=*", "default default default default Team", 0, false).await;
    check(&mixed, "?ns=*", "default default default default Team", 4, false).await;
    check(&own, "?ns=*", "Team", 0, true).await;
    check(&own, "", "Team", 0, false).await;
    check(&mixed, "?ns=team", "Team", 0, false).await;
    check(&none, "?ns=*", "", 0, true).await;
    for query in ["", "?ns=team"] {
        assert_eq!(acl.call("GET", &format!("/v1/acl/tokens{query}"), Some(&none), None).await.status, 403);
    }
    assert_eq!(acl.get("/v1/acl/tokens?ns=none").await.status, 404);
    // An empty namespace sets no header for omitted records.
    acl.make("/v1/namespace", json!({"Name": "empty"})).await;
    check(&mixed, "?ns=*", "default default default default Team", 4, false).await;
    let blocked = acl.get("/v1/acl/tokens?ns=*").await.headers["x-service-index"].to_str().unwrap().to_owned();
    let path = format!("/v1/acl/tokens?ns=*&wait=20s&index={blocked}");
    let (listed, made) = tokio::join!(acl.get(&path), async {
        acl.until_a_query_waits().await;
        acl.make(TOKEN, json!({"Namespace": "empty"})).await
    });
    assert!(listed.json().as_array().unwrap().contains(&made));
}

#[tokio::test]
async fn an_expanded_read_includes_the_namespace_defaults() {
    let (acl, own) = with_team().await;
    let shared = policy(&acl, "shared", "key_prefix \"\" { policy = \"write\" }").await;
    let role = acl.make("/v1/acl/role", json!({"Name": "r", "Policies": [{"Name": "shared"}]})).await;
    let deleted_policy = policy(&acl, "gone", "").await;
    let defaults = json!({"PolicyDefaults": [{"Name": "shared"}, {"Name": "gone"}], "RoleDefaults": [{"Name": "r"}]});
    acl.make("/v1/namespace/team", json!({ "ACLs": defaults })).await;
    acl.delete(&format!("/v1/acl/policy/{}", deleted_policy["ID"].as_str().unwrap())).await;
    let accessor = acl.call("GET", "/v1/acl/token/self", Some(&own), None).await.json();
    let read = acl.call("GET", &format!("{}?expanded", path_of(&accessor)), Some(&own), None).await.json();
    let names = |field: &str| -> Vec<&str> {
        read[field].as_array().unwrap().iter().map(|link| link["Name"].as_str().unwrap()).collect()
    };
    assert_eq!((names("ExpandedPolicies"), names("ExpandedRoles")), (vec!["all", "shared"], vec!["r"]));
    assert_eq!(read["ExpandedPolicies"][1]["Rules"], "key_prefix \"\" { policy = \"write\" }");
    assert_eq!(read["NamespaceDefaultPolicyIDs"], json!([shared["ID"]]));
    assert_eq!(read["NamespaceDefaultRoleIDs"], json!([role["ID"]]));
    assert_eq!(read.get("Roles"), None, "what the namespace gives is not linked");
}
