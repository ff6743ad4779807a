//! Tokens of Vault logins in the ACL API.

use keyward_machine::clock::Clock;
use serde_json::{Value, json};

use super::World;
use super::server::Server;
use crate::harness::{Acl, Answer};

#[tokio::test]
async fn login_tokens_are_filtered_by_method_updated_and_never_cloned() {
    let world = World::start().await;
    let root = world.server.send("PUT", "/v1/acl/bootstrap", &[], b"").await.json();
    let root = root["SecretID"].as_str().unwrap();
    let ask = async |method: &str, path: &str, body: Value| -> Answer {
        let headers = [("x-consul-token", root)];
        world.server.send(method, &format!("/v1/acl/{path}"), &headers, body.to_string().as_bytes()).await
    };
    let secret = world.server.login("machine", &world.jwt()).await.secret();
    let own = world.server.read_self(&secret).await.json();
    let accessor = own["AccessorID"].as_str().unwrap();
    let read = ask("GET", &format!("token/{accessor}"), Value::Null).await.json();
    assert_eq!((&read["AuthMethod"], &read["AuthMethodNamespace"]), (&json!("cloud"), &json!("default")));
    assert_eq!(read, own);

    for (query, expected) in [
        ("authmethod=cloud", 1),
        ("authmethod=cloud&authmethod-ns=default", 1),
        ("authmethod=cloud&authmethod-ns=other", 0),
        ("authmethod=cloud&ns=*", 1),
        ("authmethod=cloud&ns=*&authmethod-ns=other", 0),
        ("authmethod=Cloud", 0),
    ] {
        let listed = ask("GET", &format!("tokens?{query}"), Value::Null).await.json();
        assert_eq!(listed, json!(vec![&own; expected]), "{query}");
    }
    let no_name = ask("GET", "tokens?authmethod=cloud&authmethod-ns=a_b", Value::Null).await;
    assert_eq!(no_name.status, 400);

    let path = format!("token/{accessor}");
    let other = ask("PUT", &path, json!({"Local": true, "AuthMethod": "other"})).await;
    assert_eq!((other.status, other.text), (400, format!("Cannot change AuthMethod of {accessor}")));
    let clone = ask("PUT", &format!("{path}/clone"), json!({})).await;
    assert_eq!((clone.status, clone.text.as_str()), (400, "Cannot clone a token created from an auth method"));
    for body in [json!({"Local": true, "Policies": own["Policies"], "Description": own["Description"]}), own.clone()] {
        let mut written = ask("PUT", &path, body).await.json();
        written["ModifyIndex"] = own["ModifyIndex"].clone();
        assert_eq!(written, own);
    }
    assert_eq!(ask("DELETE", &path, Value::Null).await.text, "true");
    assert_eq!(world.server.read_self(&secret).await.status, 404);
}

#[tokio::test]
async fn logins_after_a_restore_link_the_restored_policies() {
    let world = World::start().await;
    let key = world.options.store.folder().unwrap().join("seal.key");
    let other_server = Acl::start_with(|options| options.key_file = Some(key)).await;
    let snapshot = other_server.snapshot().await;
    let linked = async || {
        let secret = world.server.login("machine", &world.jwt()).await.secret();
        let policies = world.server.read_self(&secret).await.json()["Policies"].clone();
        let names = policies.as_array().unwrap().iter().map(|link| link["Name"].clone()).collect::<Vec<_>>();
        assert_eq!(names, ["web-read", "web-write"]);
        policies
    };
    let before = linked().await;
    assert_eq!(linked().await, before);
    let root = world.server.send("PUT", "/v1/acl/bootstrap", &[], b"").await.json();
    let root = [("X-Service-Token", root["SecretID"].as_str().unwrap())];
    let restored = world.server.send("PUT", "/v1/snapshot", &root, &snapshot).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    // Policies created again under these names are other records.
    let after = linked().await;
    assert_ne!(after, before);
    assert_eq!(linked().await, after);
}

#[tokio::test]
async fn logins_after_a_policy_was_created_again_link_it_and_have_its_rights() {
    let world = World::start().await;
    let root = world.server.send("PUT", "/v1/acl/bootstrap", &[], b"").await.json();
    let root = root["SecretID"].as_str().unwrap();
    let ask = async |method: &str, path: &str, token: &str, body: Value| -> Answer {
        let headers = [("X-Service-Token", token)];
        let response = world.server.send(method, &format!("/v1/{path}"), &headers, body.to_string().as_bytes()).await;
        assert_eq!(response.status, 200, "{method} {path} {response:?}");
        response
    };
    let linked = async || {
        let secret = world.server.login("machine", &world.jwt()).await.secret();
        let policies = world.server.read_self(&secret).await.json()["Policies"].clone();
        let question = json!([{"Access": "read", "Resource": "key", "Segment": "a"}]);
        let rulings = ask("POST", "internal/acl/authorize", &secret, question).await.json();
        (policies, rulings[0]["Allow"].clone())
    };
    let (before, allowed) = linked().await;
    assert_eq!(allowed, json!(false));
    assert_eq!(linked().await, (before.clone(), allowed));
    let old = before[0]["ID"].as_str().unwrap();
    ask("DELETE", &format!("acl/policy/{old}"), root, Value::Null).await;
    let policy = json!({"Name": "web-read", "Rules": "key \"a\" { policy = \"read\" }"});
    let new = ask("PUT", "acl/policy", root, policy).await.json();
    assert_ne!(new["ID"], *old);
    let expected = json!([{"ID": new["ID"], "Name": "web-read"}, before[1]]);
    assert_eq!(linked().await, (expected, json!(true)));
}

#[tokio::test]
async fn a_renamed_policy_stays_linked_to_login_roles_until_another_has_its_name() {
    let mut world = World::start().await;
    let root = world.server.send("PUT", "/v1/acl/bootstrap", &[], b"").await.json();
    let root = root["SecretID"].as_str().unwrap();
    let linked = async |world: &World| {
        let secret = world.server.login("machine", &world.jwt()).await.secret();
        world.server.read_self(&secret).await.json()["Policies"].clone()
    };
    let before = linked(&world).await;
    let path = format!("/v1/acl/policy/{}", before[0]["ID"].as_str().unwrap());
    let renamed = world.server.call("PUT", &path, Some(root), Some(json!({"Name": "web-view"}))).await;
    assert_eq!(renamed.status, 200, "{renamed:?}");
    let expected = json!([{"ID": before[0]["ID"], "Name": "web-view"}, before[1]]);
    assert_eq!(linked(&world).await, expected);
    world.server.stop().await;
    world.server = Server::start(&world.options, Clock::Test(world.clock.clone())).await;
    assert_eq!(linked(&world).await, expected, "after a restart");

    let new = world.server.call("PUT", "/v1/acl/policy", Some(root), Some(json!({"Name": "web-read"}))).await.json();
    assert_eq!(linked(&world).await, json!([{"ID": new["ID"], "Name": "web-read"}, before[1]]));
    let deleted = world.server.call("DELETE", &path, Some(root), None).await;
    assert_eq!(deleted.text, "true", "{deleted:?}");
    assert_eq!(linked(&world).await[0]["ID"], new["ID"]);
}
