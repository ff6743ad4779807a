//! Names of policies, as Consul has them.

use serde_json::json;

use crate::harness::Acl;

#[tokio::test]
async fn a_policy_may_have_a_slash_in_its_name_and_is_found_and_linked_by_it() {
    let acl = Acl::start().await;
    let policy =
        acl.make("/v1/acl/policy", json!({"Name": "team/web", "Rules": "key \"a\" { policy = \"read\" }"})).await;
    assert_eq!(acl.get("/v1/acl/policy/name/team/web").await.json()["ID"], policy["ID"]);
    assert_eq!(acl.get("/v1/acl/policy/name/team%2Fweb").await.json()["ID"], policy["ID"]);
    let token = acl.make("/v1/acl/token", json!({"Policies": [{"Name": "team/web"}]})).await;
    assert_eq!(token["Policies"][0]["ID"], policy["ID"]);
    for name in ["/web", "a/b/c", "builtin/web"] {
        let refused = acl.put("/v1/acl/policy", json!({ "Name": name })).await;
        assert_eq!(refused.status, 400, "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn a_built_in_policy_can_be_renamed_and_get_its_name_back() {
    let acl = Acl::start().await;
    let path = "/v1/acl/policy/00000000-0000-0000-0000-000000000002";
    let renamed = acl.put(path, json!({"Name": "read-all", "Description": "x"})).await;
    assert_eq!((renamed.status, &renamed.json()["Name"]), (200, &json!("read-all")));
    let restored = acl.put(path, json!({"Name": "builtin/global-read-only"})).await;
    assert_eq!((restored.status, &restored.json()["Name"]), (200, &json!("builtin/global-read-only")));
    let other =
        acl.put("/v1/acl/policy/00000000-0000-0000-0000-000000000001", json!({"Name": "builtin/global-x"})).await;
    assert_eq!(other.status, 400, "{other:?}");
}
