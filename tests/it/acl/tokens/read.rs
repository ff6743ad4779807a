//! Reading single tokens.

use serde_json::{Value, json};

use super::{TOKEN, path_of, policy, secret_of};
use crate::harness::Acl;

#[tokio::test]
async fn secrets_are_shown_with_acl_write_and_hidden_with_acl_read() {
    let acl = Acl::start().await;
    let made = acl.make(TOKEN, json!({"Description": "d", "Policies": [{"Name": "global-management"}]})).await;
    let path = path_of(&made);
    let reader = acl.token_with("acl = \"read\"").await;
    let read = acl.call("GET", &path, Some(&reader), None).await;
    assert!(read.text.contains("\"SecretID\":\"\\u003chidden\\u003e\""), "{read:?}");
    let mut hidden = made.clone();
    hidden["SecretID"] = json!("<hidden>");
    assert_eq!(read.json(), hidden, "everything else is as it was made");
    let listed = acl.call("GET", "/v1/acl/tokens", Some(&reader), None).await.json();
    assert!(listed.as_array().unwrap().iter().all(|token| token["SecretID"] == "<hidden>"), "{listed}");

    let writer = acl.token_with("acl = \"write\"").await;
    assert_eq!(acl.call("GET", &path, Some(&writer), None).await.json(), made);
    let listed = acl.call("GET", "/v1/acl/tokens", Some(&writer), None).await.json();
    assert!(listed.as_array().unwrap().contains(&made), "{listed}");

    let other = acl.token_with("node_prefix \"\" { policy = \"write\" }").await;
    for (secret, who) in [(Some(other.as_str()), "token with AccessorID"), (None, "anonymous token")] {
        for path in [path.as_str(), "/v1/acl/tokens", "/v1/acl/tokens?policy=x"] {
            let refused = acl.call("GET", path, secret, None).await;
            assert_eq!(refused.status, 403, "{path}: {refused:?}");
            assert!(refused.text.contains(who) && refused.text.contains("lacks permission 'acl:read'"), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn absent_tokens_give_404_and_invalid_ids_400() {
    let acl = Acl::start().await;
    let nobody = "/v1/acl/token/11111111-1111-1111-1111-111111111111";
    let none = acl.get(nobody).await;
    assert_eq!((none.status, none.text.as_str()), (404, "Requested token does not exist: ACL not found"));
    assert!(none.headers.contains_key("x-service-index") && none.headers.contains_key("x-consul-index"));
    for (path, text) in [
        ("/v1/acl/token/", "Missing token AccessorID"),
        ("/v1/acl/token/definitely-really-not-a-uuid", "UUID must be 36 characters"),
        ("/v1/acl/token/gggggggg-gggg-gggg-gggg-gggggggggggg", "Invalid UUID"),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let wrong = acl.call(method, path, Some(&acl.root), Some(json!({}))).await;
            assert!(wrong.status == 400 && wrong.text.contains(text), "{method} {path}: {wrong:?}");
        }
    }
    let expired = acl.make(TOKEN, json!({"ExpirationTTL": "1m"})).await;
    acl.clock.set_wall_by(60);
    assert_eq!(acl.get(&path_of(&expired)).await.status, 404);
    let listed = acl.get("/v1/acl/tokens").await.json();
    assert!(listed.as_array().unwrap().iter().all(|token| token["AccessorID"] != expired["AccessorID"]));
    let own = acl.call("GET", "/v1/acl/token/self", Some(secret_of(&expired)), None).await;
    assert_eq!((own.status, own.text.as_str()), (404, "Supplied token does not exist"));
    for path in ["/v1/acl/tokens", nobody] {
        let caller = acl.call("GET", path, Some(secret_of(&expired)), None).await;
        assert_eq!((caller.status, caller.text.as_str()), (403, "ACL not found"));
    }
}

#[tokio::test]
async fn a_token_can_read_itself() {
    let acl = Acl::start().await;
    let made = acl.make(TOKEN, json!({"Description": "d"})).await;
    let own = acl.call("GET", "/v1/acl/token/self", Some(secret_of(&made)), None).await;
    assert_eq!((own.status, own.json()), (200, made));
    let anonymous = acl.call("GET", "/v1/acl/token/self", Some("anonymous"), None).await.json();
    assert_eq!(anonymous["AccessorID"], "00000000-0000-0000-0000-000000000002");
    assert_eq!(anonymous["Hash"], "RNVFSWnfd5DUOuB8vplp+imivlIna3fKQVnkUHh21cA=");
    for secret in [None, Some("nobody"), Some("allow"), Some("11111111-1111-1111-1111-111111111111")] {
        let none = acl.call("GET", "/v1/acl/token/self", secret, None).await;
        assert_eq!((none.status, none.text.as_str()), (404, "Supplied token does not exist"), "{secret:?}");
    }
}

#[tokio::test]
async fn an_expanded_read_lists_each_policy_and_role_once() {
    let acl = Acl::start().await;
    let (own, shared) = (policy(&acl, "own", "acl = \"read\"").await, policy(&acl, "shared", "").await);
    let link = json!([{"Name": "shared"}]);
    let web = json!([{"ServiceName": "web"}]);
    acl.make("/v1/acl/role", json!({"Name": "r1", "Policies": link, "ServiceIdentities": web})).await;
    acl.make("/v1/acl/role", json!({"Name": "r2", "Policies": link})).await;
    let body = json!({
        "Policies": [{"Name": "own"}], "Roles": [{"Name": "r1"}, {"Name": "r2"}],
        "ServiceIdentities": web, "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}],
    });
    let made = acl.make(TOKEN, body).await;
    let read = acl.get(&format!("{}?expanded=true", path_of(&made))).await.json();
    let names = |field: &str| -> Vec<&str> {
        read[field].as_array().unwrap().iter().map(|link| link["Name"].as_str().unwrap()).collect()
    };
    assert_eq!(names("ExpandedRoles"), ["r1", "r2"]);
    let policies = read["ExpandedPolicies"].as_array().unwrap();
    assert_eq!(policies.len(), 4, "{read}");
    assert_eq!(policies[0], acl.get(&format!("/v1/acl/policy/{}", own["ID"].as_str().unwrap())).await.json());
    assert_eq!(policies[1]["ID"], shared["ID"]);
    let read_all = |kind: &str| format!("{kind}_prefix \"\" {{\n\tpolicy = \"read\"\n}}");
    let write = |kind: &str, name: &str| format!("{kind} \"{name}\" {{\n\tpolicy = \"write\"\n}}");
    let of_web =
        [write("service", "web"), write("service", "web-sidecar-proxy"), read_all("service"), read_all("node")];
    let of_n1 = [write("node", "n1"), read_all("service")];
    for (policy, rules, about) in [
        (&policies[2], &of_web[..], "synthetic policy for service identity \"web\""),
        (&policies[3], &of_n1[..], "synthetic policy for node identity \"n1\""),
    ] {
        assert_eq!(policy["Rules"], json!(format!("\n{}", rules.join("\n"))));
        assert_eq!((&policy["Description"], &policy["CreateIndex"]), (&json!(about), &json!(0)));
        assert_eq!(policy["Name"], json!(format!("synthetic-policy-{}", policy["ID"].as_str().unwrap())));
    }
    assert_eq!(policies[3]["Datacenters"], json!(["dc1"]));
    assert_eq!(
        (&read["AgentACLDefaultPolicy"], &read["AgentACLDownPolicy"], read["ResolvedByAgent"].is_string()),
        (&json!("deny"), &json!("deny"), true)
    );
    for plain in ["", "?expanded=false", "?expanded=0"] {
        let read = acl.get(&format!("{}{plain}", path_of(&made))).await.json();
        assert_eq!(read, made, "{plain}");
    }

    let bare = acl.make(TOKEN, json!({})).await;
    let read = acl.get(&format!("{}?expanded", path_of(&bare))).await.json();
    for field in ["ExpandedPolicies", "ExpandedRoles", "NamespaceDefaultPolicyIDs", "NamespaceDefaultRoleIDs"] {
        assert_eq!(read.get(field), Some(&Value::Null), "{field}");
    }
}

#[tokio::test]
async fn links_follow_renames_and_disappear_with_their_target() {
    let acl = Acl::start().await;
    let rules = policy(&acl, "p", "acl = \"read\"").await;
    let role = acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let made = acl.make(TOKEN, json!({"Policies": [{"Name": "p"}], "Roles": [{"Name": "r"}]})).await;
    let secret = secret_of(&made);
    let (policy_path, role_path) = (
        format!("/v1/acl/policy/{}", rules["ID"].as_str().unwrap()),
        format!("/v1/acl/role/{}", role["ID"].as_str().unwrap()),
    );
    acl.make(&policy_path, json!({"Name": "p2", "Rules": "acl = \"read\""})).await;
    acl.make(&role_path, json!({"Name": "r2"})).await;
    let read = acl.call("GET", &path_of(&made), Some(secret), None).await.json();
    assert_eq!(read["Policies"], json!([{"ID": rules["ID"], "Name": "p2"}]));
    assert_eq!(read["Roles"], json!([{"ID": role["ID"], "Name": "r2"}]));
    assert_eq!(read["Hash"], made["Hash"]);

    acl.delete(&policy_path).await;
    acl.delete(&role_path).await;
    let read = acl.get(&path_of(&made)).await.json();
    assert_eq!((read.get("Policies"), read.get("Roles")), (None, None));
    let refused = acl.call("GET", &path_of(&made), Some(secret), None).await;
    assert_eq!(refused.status, 403, "it lives on without its rights: {refused:?}");
}

#[tokio::test]
async fn a_blocking_read_returns_when_its_token_is_created_or_changed() {
    let acl = Acl::start().await;
    let accessor = uuid::Uuid::new_v4().to_string();
    let path = format!("{TOKEN}/{accessor}");
    let index = |response: &crate::harness::Answer| -> u64 {
        response.headers["x-service-index"].to_str().unwrap().parse().unwrap()
    };
    let mut last = index(&acl.get(&path).await);
    for (target, body) in [(TOKEN, json!({ "AccessorID": accessor })), (path.as_str(), json!({"Description": "new"}))] {
        let blocked = format!("{path}?index={last}&wait=20s");
        let (read, made) = tokio::join!(acl.get(&blocked), async {
            acl.until_a_query_waits().await;
            acl.make(target, body).await
        });
        assert_eq!(read.json(), made);
        assert!(index(&read) > last);
        last = index(&read);
    }
    let timed_out = acl.get(&format!("{path}?index={last}&wait=10ms")).await;
    assert_eq!((timed_out.status, index(&timed_out)), (200, last));
    let own = format!("/v1/acl/token/self?index={last}&wait=20s");
    let secret = acl.get(&path).await.json();
    let (read, _) = tokio::join!(acl.call("GET", &own, Some(secret_of(&secret)), None), async {
        acl.until_a_query_waits().await;
        acl.delete(&path).await
    });
    assert_eq!(read.status, 404, "the caller is looked at again: {read:?}");
}
