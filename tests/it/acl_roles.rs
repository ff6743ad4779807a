//! Roles, policies and the first token, over HTTP.

use serde_json::{Value, json};

use crate::harness::Acl;

#[tokio::test]
async fn the_first_token_is_given_once_and_has_its_secret_twice() {
    let acl = Acl::start().await;
    let read = acl.get("/v1/acl/token/self").await.json();
    assert_eq!(
        (&read["SecretID"], &read["Description"]),
        (&json!(acl.root), &json!("Bootstrap Token (Global Management)"))
    );
    assert_eq!(read["Policies"][0]["Name"], "global-management");
    let again = acl.call("PUT", "/v1/acl/bootstrap", None, None).await;
    assert_eq!(again.status, 403);
    assert!(again.text.contains("ACL bootstrap no longer allowed (reset index: "), "{again:?}");
}

#[tokio::test]
async fn a_role_keeps_its_links_when_what_it_links_is_renamed() {
    let acl = Acl::start().await;
    let rules = json!({"Name": "web-read", "Rules": "service_prefix \"\" { policy = \"read\" }"});
    let policy = acl.make("/v1/acl/policy", rules).await;
    let role = json!({
        "Name": "web", "Description": "d", "Policies": [{"Name": "web-read"}, {"ID": policy["ID"]}],
        "ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["b"]}, {"ServiceName": "web", "Datacenters": ["a"]}],
        "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/node", "TemplateVariables": {"name": "n2", "other": {"a": "b"}}}],
    });
    let made = acl.make("/v1/acl/role", role).await;
    assert_eq!(made["Policies"], json!([{"ID": policy["ID"], "Name": "web-read"}]));
    assert_eq!(made["ServiceIdentities"], json!([{"ServiceName": "web", "Datacenters": ["a", "b"]}]));
    assert_eq!(made["TemplatedPolicies"][0]["TemplateVariables"]["other"], json!({"a": "b"}));
    assert_eq!((made["CreateIndex"].as_u64(), &made["Partition"]), (made["ModifyIndex"].as_u64(), &json!("default")));

    let renamed = json!({"Name": "web-see", "Rules": ""});
    acl.make(&format!("/v1/acl/policy/{}", policy["ID"].as_str().unwrap()), renamed).await;
    let path = format!("/v1/acl/role/{}", made["ID"].as_str().unwrap());
    assert_eq!(acl.get(&path).await.json()["Policies"], json!([{"ID": policy["ID"], "Name": "web-see"}]));
    assert_eq!(acl.get("/v1/acl/role/name/web").await.json()["ID"], made["ID"]);

    // What was read can be written back.
    let read = acl.get(&path).await.json();
    let written = acl.make(&path, read.clone()).await;
    assert!(written["ModifyIndex"].as_u64() > read["ModifyIndex"].as_u64());
    assert_eq!(written["Hash"], read["Hash"]);

    let listed = acl.get(&format!("/v1/acl/roles?policy={}", policy["ID"].as_str().unwrap())).await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(acl.delete(&path).await.json(), json!(true));
    let again = acl.delete(&path).await;
    assert_eq!((again.status, again.json()), (200, json!(false)));
    let gone = acl.get(&path).await;
    assert_eq!((gone.status, gone.text.as_str()), (404, "Requested role does not exist: ACL not found"));
    assert!(gone.headers.contains_key("x-consul-index") && gone.headers.contains_key("x-service-index"));
    assert_eq!(acl.get("/v1/acl/roles").await.json(), Value::Array(vec![]));
}

#[tokio::test]
async fn a_blocked_read_returns_when_the_role_is_made() {
    let acl = Acl::start().await;
    let missing = acl.get("/v1/acl/role/name/late").await;
    let index: u64 = missing.headers["x-service-index"].to_str().unwrap().parse().unwrap();
    let path = format!("/v1/acl/role/name/late?index={index}&wait=20s");
    let (read, made) = tokio::join!(acl.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        acl.make("/v1/acl/role", json!({"Name": "late"})).await
    });
    assert_eq!((read.status, &read.json()["ID"]), (200, &made["ID"]));
    assert!(read.headers["x-consul-index"].to_str().unwrap().parse::<u64>().unwrap() > index);
}
