//! Roles, policies and the first token, over HTTP.

use serde_json::{Value, json};

use crate::harness::Acl;

#[tokio::test]
async fn bootstrap_succeeds_once_and_returns_the_secret_under_two_names() {
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
async fn a_role_keeps_its_links_when_a_linked_record_is_renamed() {
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

    // A record can be written back as read.
    let read = acl.get(&path).await.json();
    let written = acl.make(&path, read.clone()).await;
    assert!(written["ModifyIndex"].as_u64() > read["ModifyIndex"].as_u64());
    assert_eq!(written["Hash"], read["Hash"]);

    let listed = acl.get(&format!("/v1/acl/roles?policy={}", policy["ID"].as_str().unwrap())).await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(acl.delete(&path).await.json(), json!(true));
    let again = acl.delete(&path).await;
    assert_eq!((again.status, again.json()), (200, json!(false)));
    let deleted = acl.get(&path).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (404, "Requested role does not exist: ACL not found"));
    assert!(deleted.headers.contains_key("x-consul-index") && deleted.headers.contains_key("x-service-index"));
    assert_eq!(acl.get("/v1/acl/roles").await.json(), Value::Array(vec![]));
}

#[tokio::test]
async fn a_blocking_read_returns_when_the_role_is_created() {
    let acl = Acl::start().await;
    let missing = acl.get("/v1/acl/role/name/late").await;
    let index: u64 = missing.headers["x-service-index"].to_str().unwrap().parse().unwrap();
    let path = format!("/v1/acl/role/name/late?index={index}&wait=20s");
    let (read, made) = tokio::join!(acl.get(&path), async {
        acl.until_a_query_waits().await;
        acl.make("/v1/acl/role", json!({"Name": "late"})).await
    });
    assert_eq!((read.status, &read.json()["ID"]), (200, &made["ID"]));
    assert!(read.headers["x-consul-index"].to_str().unwrap().parse::<u64>().unwrap() > index);
}

#[tokio::test]
async fn a_role_gets_an_id_and_needs_a_free_name() {
    let acl = Acl::start().await;
    let policy = acl.make("/v1/acl/policy", json!({"Name": "p"})).await;
    let links = json!([{"ID": policy["ID"]}, {"Name": "p"}]);
    let nodes = json!([{"NodeName": "n1", "Datacenter": "dc1"}]);
    let made = acl.make("/v1/acl/role", json!({"Name": "web", "Policies": links, "NodeIdentities": nodes})).await;
    assert_eq!(made["ID"].as_str().map(str::len), Some(36));
    assert_eq!((&made["NodeIdentities"], made["Hash"].as_str().map(str::len)), (&nodes, Some(44)));
    assert!(made["CreateIndex"].as_u64() > Some(0) && made["ModifyIndex"] == made["CreateIndex"]);

    let role = format!("/v1/acl/role/{}", made["ID"].as_str().unwrap());
    let other = "11111111-1111-1111-1111-111111111111";
    let mismatch = "Role ID in URL and payload do not match";
    let refused = async |path: &str, body: Value, status: u16, text: &str| {
        let response = acl.put(path, body.clone()).await;
        assert_eq!((response.status, response.text.as_str()), (status, text), "{path} {body}");
    };
    refused("/v1/acl/role", json!({"ID": other, "Name": "new"}), 400, mismatch).await;
    refused(&role, json!({"ID": other, "Name": "web"}), 400, mismatch).await;
    refused("/v1/acl/role/", json!({"Name": "web"}), 400, "Missing role ID").await;
    let response = acl.get("/v1/acl/role/").await;
    assert_eq!((response.status, response.text.as_str()), (400, "Missing role ID"));

    let taken = "Invalid Role: A Role with Name \"web\" already exists";
    refused("/v1/acl/role", json!({"Name": "web"}), 409, taken).await;
    let second = acl.make("/v1/acl/role", json!({"Name": "db"})).await;
    let second = format!("/v1/acl/role/{}", second["ID"].as_str().unwrap());
    refused(&second, json!({"Name": "web"}), 409, "Invalid Role: A role with name \"web\" already exists").await;

    // A rename frees the old name.
    let renamed = acl.make(&role, json!({"Name": "www"})).await;
    assert_eq!((&renamed["ID"], renamed.get("Policies")), (&made["ID"], None));
    assert!(renamed["ModifyIndex"].as_u64() > made["ModifyIndex"].as_u64());
    assert_eq!(acl.make(&second, json!({"Name": "web"})).await["Name"], "web");
    assert_eq!(acl.get("/v1/acl/role/name/www").await.json()["ID"], made["ID"]);
    assert_eq!(acl.get("/v1/acl/role/name/db").await.status, 404);
}

#[tokio::test]
async fn role_names_and_identities_are_validated() {
    let acl = Acl::start().await;
    let longest = "x".repeat(256);
    for name in ["a", "A9", "-a", "a-", "_", "a_b-c", &longest] {
        assert_eq!(acl.make("/v1/acl/role", json!({"Name": name})).await["Name"], name);
        assert_eq!(acl.get(&format!("/v1/acl/role/name/{name}")).await.json()["Name"], name);
    }
    let invalid = "Invalid Role: invalid Name. Only alphanumeric characters, '-' and '_' are allowed";
    let lower = "Only lowercase alphanumeric characters, '-' and '_' are allowed";
    let longer = "x".repeat(257);
    let with = |what: &str, value: Value| json!({"Name": "r", what: [value]});
    for (body, text) in [
        (json!({"Name": ""}), "Invalid Role: no Name is set".to_owned()),
        (json!({"Name": "bad?bad"}), invalid.to_owned()),
        (json!({"Name": "a:bc"}), invalid.to_owned()),
        (json!({"Name": "é"}), invalid.to_owned()),
        (json!({"Name": longer}), invalid.to_owned()),
        (
            with("ServiceIdentities", json!({"ServiceName": ""})),
            "Service identity is missing the service name field on this role".to_owned(),
        ),
        (
            with("ServiceIdentities", json!({"ServiceName": "FOO"})),
            format!("Service identity \"FOO\" has an invalid name. {lower}"),
        ),
        (
            with("NodeIdentities", json!({"NodeName": "", "Datacenter": "dc1"})),
            "Node identity is missing the node name field on this role".to_owned(),
        ),
        (
            with("NodeIdentities", json!({"NodeName": "n1"})),
            "Node identity is missing the datacenter field on this role".to_owned(),
        ),
        (
            with("NodeIdentities", json!({"NodeName": "n.1", "Datacenter": "dc1"})),
            format!("Node identity has an invalid name. {lower}"),
        ),
    ] {
        let response = acl.put("/v1/acl/role", body.clone()).await;
        assert_eq!(response.status, 400, "{body} {response:?}");
        assert!(response.text.starts_with(&text), "{body}: {} is not {text}", response.text);
    }
    assert_eq!(acl.get("/v1/acl/role/name/r").await.status, 404, "what was refused was not made");
}
