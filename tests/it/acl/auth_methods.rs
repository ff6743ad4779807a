//! Auth methods and binding rules, over HTTP.

use std::time::Duration;

use keyward_acl::store::{Batch, Freshness, Key as RowKey, Page, Write};
use serde_json::{Value, json};

use crate::harness::Acl;
use crate::harness::issuer::Key;

fn jwt_method(name: &str, key: &Key) -> Value {
    json!({
        "Name": name, "Type": "jwt", "DisplayName": "people", "Description": "d", "MaxTokenTTL": "5m",
        "TokenLocality": "global",
        "Config": {
            "JWTValidationPubKeys": [key.pem()], "BoundIssuer": "i", "BoundAudiences": ["a"],
            "JWTSupportedAlgs": ["RS256", "ES256"], "ClaimMappings": {"first_name": "name", "/org/primary": "org"},
            "ListClaimMappings": {"groups": "groups"}, "ExpirationLeeway": "90s", "ClockSkewLeeway": 5_000_000_000_i64,
        },
    })
}

#[tokio::test]
async fn the_deletion_of_an_auth_method_takes_the_same_number_of_revisions_each_time() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    let index = async |name: &str| {
        let policy = acl.make("/v1/acl/policy", json!({"Name": name})).await;
        policy["CreateIndex"].as_u64().unwrap()
    };
    // The server finishes deletions in the background, too, and starts when the request writes its first record.
    let before = index("before").await;
    for round in 0..30 {
        acl.make("/v1/acl/auth-method", jwt_method(&format!("m-{round}"), &key)).await;
        let rule = json!({"AuthMethod": format!("m-{round}"), "BindType": "node", "BindName": "n"});
        acl.make("/v1/acl/binding-rule", rule).await;
        assert_eq!(acl.delete(&format!("/v1/acl/auth-method/m-{round}")).await.json(), json!(true));
    }
    // The method, its rule, the deletion of both, the end of the removal; and the last policy.
    assert_eq!(index("after").await - before, 5 * 30 + 1);
}

#[tokio::test]
async fn an_auth_method_is_read_as_written() {
    let acl = Acl::start().await;
    let written = jwt_method("people", &Key::shared("k"));
    let made = acl.make("/v1/acl/auth-method", written.clone()).await;
    for field in ["Name", "Type", "DisplayName", "Description", "TokenLocality", "Config"] {
        assert_eq!(made[field], written[field], "{field}");
    }
    assert_eq!(made["MaxTokenTTL"], "5m0s");
    assert_eq!((&made["Namespace"], &made["Partition"]), (&json!("default"), &json!("default")));
    assert_eq!(acl.get("/v1/acl/auth-method/people").await.json(), made);

    // A record can be written back as read.
    let again = acl.make("/v1/acl/auth-method/people", made.clone()).await;
    assert!(again["ModifyIndex"].as_u64() > made["ModifyIndex"].as_u64());
    assert_eq!((&again["CreateIndex"], &again["Config"]), (&made["CreateIndex"], &made["Config"]));

    let mut listed = acl.get("/v1/acl/auth-methods").await.json();
    let mut whole = again.clone();
    whole.as_object_mut().unwrap().remove("Config");
    assert_eq!(listed.as_array_mut().unwrap().pop(), Some(whole));

    // An update needs neither name nor type, and clears absent fields.
    let config = json!({"JWKSURL": "https://issuer.example/keys"});
    let least = acl.make("/v1/acl/auth-method/people", json!({"Config": config})).await;
    assert_eq!((&least["Type"], &least["Config"]), (&json!("jwt"), &config));
    // An absent locality gets no default: Terraform plans would show a permanent change.
    assert_eq!(least.get("TokenLocality"), None, "{least}");
    assert_eq!(acl.get("/v1/acl/auth-method/people").await.json(), least);
    let local = acl.make("/v1/acl/auth-method/people", json!({"Config": config, "TokenLocality": "local"})).await;
    assert_eq!(local["TokenLocality"], "local");
    assert!(["MaxTokenTTL", "DisplayName", "Description"].iter().all(|field| least.get(field).is_none()), "{least}");

    assert_eq!(acl.delete("/v1/acl/auth-method/people").await.json(), json!(true));
    let deleted = acl.delete("/v1/acl/auth-method/people").await;
    assert_eq!((deleted.status, deleted.json()), (200, json!(false)));
    let deleted = acl.get("/v1/acl/auth-method/people").await;
    assert_eq!((deleted.status, deleted.text.as_str()), (404, "Requested auth method does not exist: ACL not found"));
    assert!(deleted.headers.contains_key("x-consul-index"));
    assert_eq!(acl.get("/v1/acl/auth-methods").await.json(), json!([]));
}

#[tokio::test]
async fn invalid_auth_methods_are_refused_with_the_reason() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    acl.make("/v1/acl/auth-method", jwt_method("taken", &key)).await;
    let check = async |change: Value, status: u16, reason: &str| {
        let mut draft = jwt_method("new", &key);
        draft.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let response = acl.put("/v1/acl/auth-method", draft).await;
        assert_eq!(response.status, status, "{change} {response:?}");
        assert!(response.text.contains(reason), "{change} {response:?}");
    };
    check(json!({"Name": ""}), 400, "Invalid Auth Method: no Name is set").await;
    let form = "Invalid Auth Method: invalid Name. Only alphanumeric characters, '-' and '_' are allowed";
    for name in ["a b", "a/b", "é", "bad?bad", &"x".repeat(129)] {
        check(json!({ "Name": name }), 400, form).await;
    }
    check(json!({"Name": "taken"}), 409, "An auth method with Name \"taken\" already exists").await;
    check(json!({"Type": ""}), 400, "no Type is set").await;
    check(json!({"Type": "kubernetes"}), 400, "Type \"kubernetes\" is unknown: it is \"cloud\", \"jwt\" or \"oidc\"")
        .await;
    check(json!({"MaxTokenTTL": "1ms"}), 400, "MaxTokenTTL 1ms cannot be less than 1m0s").await;
    check(json!({"MaxTokenTTL": "25h"}), 400, "MaxTokenTTL 25h0m0s cannot be more than 24h0m0s").await;
    check(json!({"MaxTokenTTL": "soon"}), 400, "not a duration").await;
    check(json!({"TokenLocality": "here"}), 400, "TokenLocality \"here\" is neither").await;
    check(json!({"Config": {}}), 400, "Config must have exactly one of").await;
    check(json!({"Config": {"JWTValidationPubKeys": ["x"]}}), 400, "JWTValidationPubKeys[0] is not a PEM public key")
        .await;
    check(json!({"Config": {"JWKSURL": "http://10.0.0.1/"}}), 400, "must be https, or http on loopback").await;
    check(json!({"Config": {"JWKSURL": "https://u:hush@a/"}}), 400, "must not contain a user").await;
    check(json!({"Config": {"JWTSupportedAlgs": ["HS256"], "JWKSURL": "https://a"}}), 400, "none of RS256").await;
    check(json!({"Config": 7}), 400, "field Config of type map").await;
    let rules = |selector: &str, namespace: &str| json!({"NamespaceRules": [{"Selector": selector, "BindNamespace": namespace}]});
    check(rules("value.x == y", "a"), 400, "Invalid Auth Method: NamespaceRules[0]: invalid Selector: value.x is")
        .await;
    check(rules("", "${value.x}"), 400, "NamespaceRules[0]: invalid BindNamespace: ${value.x} is unknown").await;
    check(rules("", ""), 400, "invalid BindNamespace: \"\" is not a valid name for a namespace").await;
    check(json!({"NamespaceRules": [{"Other": 1}]}), 400, "unknown field \"Other\"").await;
    check(json!({"TokenNameFormat": "${identity.x}"}), 400, "invalid TokenNameFormat: ${identity.x} is unknown").await;
    for none in [Value::Null, json!([])] {
        let draft = json!({"Name": "none", "NamespaceRules": none, "TokenNameFormat": ""});
        check(draft, 200, "\"Name\":\"none\"").await;
        assert_eq!(acl.delete("/v1/acl/auth-method/none").await.status, 200);
    }
    check(json!({"Other": 7}), 400, "AuthMethod decoding failed: json: unknown field \"Other\"").await;
    check(json!({"MaxTokenTTL": 90_000_000_000_i64, "Name": "x".repeat(128)}), 200, "1m30s").await;

    let update = async |name: &str, body: Value| acl.put(&format!("/v1/acl/auth-method/{name}"), body).await;
    let typed = update("taken", json!({"Type": "cloud"})).await;
    assert_eq!((typed.status, typed.text.as_str()), (400, "Changing an Auth Method's Type is not permitted"));
    let named = update("taken", json!({"Name": "other"})).await;
    assert_eq!((named.status, named.text.as_str()), (400, "Auth Method Name in URL and payload do not match"));
    let missing = update("missing", jwt_method("missing", &key)).await;
    assert_eq!((missing.status, missing.text.as_str()), (404, "cannot find auth method \"missing\""));
    assert_eq!(acl.get("/v1/acl/auth-method/").await.text, "Missing auth method Name");
}

#[tokio::test]
async fn methods_and_rules_need_acl_read_and_acl_write() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    acl.jwt_method("people", &key).await;
    let rule = acl.get("/v1/acl/binding-rules").await.json()[0]["ID"].as_str().unwrap().to_owned();
    let rule = format!("/v1/acl/binding-rule/{rule}");
    let reads = acl.token_with("acl = \"read\"").await;
    let none = acl.token_with("operator = \"write\"").await;
    let method = "/v1/acl/auth-method/people";
    for path in [method, "/v1/acl/auth-methods", &rule, "/v1/acl/binding-rules"] {
        assert_eq!(acl.call("GET", path, Some(&reads), None).await.status, 200, "{path}");
        for token in [Some(none.as_str()), None] {
            let response = acl.call("GET", path, token, None).await;
            assert!(
                response.status == 403 && response.text.contains("lacks permission 'acl:read'"),
                "{path} {response:?}"
            );
        }
    }
    let bind = json!({"AuthMethod": "people", "BindType": "service", "BindName": "web"});
    for (verb, path, body) in [
        ("PUT", "/v1/acl/auth-method", Some(jwt_method("more", &key))),
        ("PUT", method, Some(jwt_method("people", &key))),
        ("DELETE", method, None),
        ("PUT", "/v1/acl/binding-rule", Some(bind.clone())),
        ("PUT", &rule, Some(bind)),
        ("DELETE", &rule, None),
    ] {
        for token in [&reads, &none] {
            let response = acl.call(verb, path, Some(token), body.clone()).await;
            assert!(
                response.status == 403 && response.text.contains("lacks permission 'acl:write'"),
                "{path} {response:?}"
            );
        }
    }
}

#[tokio::test]
async fn binding_rules_are_created_read_updated_listed_and_deleted() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    for name in ["people", "others"] {
        acl.make("/v1/acl/auth-method", jwt_method(name, &key)).await;
    }
    let written = json!({
        "AuthMethod": "people", "Description": "d", "Selector": "value.name == jeff and ops in list.groups",
        "BindType": "templated-policy", "BindName": "builtin/service", "BindVars": {"Name": "web-${value.org}"},
    });
    let made = acl.make("/v1/acl/binding-rule", written.clone()).await;
    for (field, value) in written.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    let path = format!("/v1/acl/binding-rule/{}", made["ID"].as_str().unwrap());
    assert_eq!(acl.get(&path).await.json(), made);
    let mut back = made.clone();
    back["Description"] = json!("e");
    let changed = acl.make(&path, back).await;
    assert_eq!((&changed["Description"], &changed["CreateIndex"]), (&json!("e"), &made["CreateIndex"]));

    let node = json!({"AuthMethod": "others", "BindType": "node", "BindName": "n-${value.name}"});
    acl.make("/v1/acl/binding-rule", node).await;
    let list = async |query: &str| {
        let found = acl.get(&format!("/v1/acl/binding-rules{query}")).await.json();
        found.as_array().unwrap().len()
    };
    assert_eq!((list("").await, list("?authmethod=people").await, list("?authmethod=nobody").await), (2, 1, 0));

    let least = json!({"BindType": "role", "BindName": "r"});
    let least = acl.make(&path, least).await;
    assert_eq!((&least["AuthMethod"], &least["Selector"], least.get("BindVars")), (&json!("people"), &json!(""), None));
    assert_eq!(acl.delete(&path).await.json(), json!(true));
    assert_eq!(acl.delete(&path).await.json(), json!(false));
    let deleted = acl.get(&path).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (404, "Requested binding rule does not exist: ACL not found"));
    assert_eq!(acl.put(&path, json!({"BindType": "role", "BindName": "r"})).await.status, 404);
    assert_eq!(acl.get("/v1/acl/binding-rule/").await.text, "Missing binding rule ID");
}

#[tokio::test]
async fn invalid_binding_rules_are_refused_with_the_reason() {
    let acl = Acl::start().await;
    acl.make("/v1/acl/auth-method", jwt_method("people", &Key::shared("k"))).await;
    let check = async |change: Value, reason: &str| {
        let mut draft = json!({"AuthMethod": "people", "BindType": "service", "BindName": "web"});
        draft.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let response = acl.put("/v1/acl/binding-rule", draft).await;
        assert_eq!(response.status, 400, "{change} {response:?}");
        assert!(response.text.contains(reason), "{change} {response:?}");
    };
    check(json!({"AuthMethod": ""}), "Invalid Binding Rule: no AuthMethod is set").await;
    check(json!({"AuthMethod": "nobody"}), "cannot find auth method with name \"nobody\": not found").await;
    check(json!({"BindType": "group"}), "unknown BindType \"group\"").await;
    check(json!({"BindName": ""}), "no BindName is set").await;
    check(json!({"BindName": "Web"}), "\"Web\" is not a valid name for this BindType").await;
    check(json!({"BindName": "${value.other}"}), "available: value.name, value.org, list.groups").await;
    check(json!({"BindType": "role", "BindName": "a/b"}), "is not a valid name for this BindType").await;
    check(
        json!({"BindType": "templated-policy", "BindName": "builtin/x"}),
        "templated policy \"builtin/x\" does not exist",
    )
    .await;
    check(json!({"BindType": "templated-policy", "BindName": "builtin/node"}), "BindVars must be").await;
    check(json!({"Selector": "value.name = x"}), "invalid Selector: at character 12: expected \"==\"").await;
    check(json!({"Selector": "value.other == x"}), "value.other is unknown").await;
    check(json!({"Selector": 7}), "field Selector of type string").await;
    check(json!({"ID": "6a1253d2-1785-24fd-91c2-f8e78c745511"}), "Binding Rule ID in URL and payload do not match")
        .await;
    let rule = acl.make("/v1/acl/binding-rule", json!({"AuthMethod": "people", "BindType": "node", "BindName": "n"}));
    let path = format!("/v1/acl/binding-rule/{}", rule.await["ID"].as_str().unwrap());
    let moved = acl.put(&path, json!({"AuthMethod": "other", "BindType": "node", "BindName": "n"})).await;
    assert!(moved.status == 400 && moved.text.contains("AuthMethod of a binding rule is immutable"), "{moved:?}");
}

#[tokio::test]
async fn deleting_an_auth_method_deletes_its_rules_and_tokens_only() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    acl.jwt_method("people", &key).await;
    acl.jwt_method("others", &key).await;
    let token = acl.log_in("people", &acl.proof(&key)).await.json();
    let other = acl.log_in("others", &acl.proof(&key)).await.json();
    let read = async |token: &Value| {
        let secret = token["SecretID"].as_str().unwrap();
        acl.call("GET", "/v1/acl/token/self", Some(secret), None).await.status
    };
    assert_eq!((read(&token).await, read(&other).await), (200, 200));
    assert_eq!(acl.delete("/v1/acl/auth-method/people").await.json(), json!(true));
    assert_eq!((read(&token).await, read(&other).await), (404, 200));
    let accessor = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
    assert_eq!(acl.get(&accessor).await.status, 404);
    let rules = acl.get("/v1/acl/binding-rules").await.json();
    assert_eq!((rules.as_array().unwrap().len(), &rules[0]["AuthMethod"]), (1, &json!("others")));

    // A method created again under the name has no rules.
    let config = json!({"JWTValidationPubKeys": [key.pem()]});
    acl.make("/v1/acl/auth-method", json!({"Name": "people", "Type": "jwt", "Config": config})).await;
    let refused = acl.log_in("people", &acl.proof(&key)).await;
    assert_eq!((refused.status, refused.text.as_str()), (403, "Permission denied"));
    assert_eq!(read(&token).await, 404);
}

#[tokio::test]
async fn an_unreadable_token_does_not_stop_the_deletion_of_the_others() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    acl.jwt_method("people", &key).await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let token = acl.log_in("people", &acl.proof(&key)).await.json();
        tokens.push(token["AccessorID"].as_str().unwrap().to_owned());
    }
    tokens.sort();
    let damaged = RowKey::new(&["token", "default", &tokens[0]]);
    let writes = vec![Write::Put(damaged.clone(), b"nonsense".to_vec())];
    let acl = acl
        .restarted_with(async |store| {
            store.commit(Batch { checks: vec![], writes }).await.unwrap();
        })
        .await;
    assert_eq!(acl.delete("/v1/acl/auth-method/people").await.json(), json!(true));
    acl.restarted_with(async |store| {
        // The first token, the anonymous one, and the unreadable one with its indexes and the removal mark.
        for (prefix, expected) in [("binding-rule/", 0), ("token-login/", 1), ("removal/", 1), ("token/", 3)] {
            let page = Page { after: None, limit: 9 };
            let found = store.list(prefix, page, Freshness::Linearizable).await.unwrap();
            assert_eq!(found.entries.len(), expected, "{prefix}");
        }
    })
    .await;
}

#[tokio::test]
async fn leftovers_of_a_deleted_auth_method_are_removed_after_a_restart() {
    let acl = Acl::start().await;
    let key = Key::shared("k");
    acl.jwt_method("people", &key).await;
    let mut secrets = Vec::new();
    for _ in 0..3 {
        let token = acl.log_in("people", &acl.proof(&key)).await.json();
        secrets.push(token["SecretID"].as_str().unwrap().to_owned());
    }
    // State after a kill directly after the deletion of the method.
    let method = RowKey::new(&["auth-method", "default", "people"]);
    let acl = acl
        .restarted_with(async |store| {
            let record = store.get(&method, Freshness::Linearizable).await.unwrap().unwrap();
            let id = serde_json::from_slice::<Value>(&record.value).unwrap()["id"].as_str().unwrap().to_owned();
            let row = json!({"method": id, "namespace": "default"}).to_string().into_bytes();
            let mark = Write::Put(RowKey::new(&["removal", "auth-method", &id]), row);
            store.commit(Batch { checks: vec![], writes: vec![Write::Delete(method), mark] }).await.unwrap();
        })
        .await;
    for secret in &secrets {
        assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(secret), None).await.status, 404);
    }
    for _ in 0..200 {
        if acl.get("/v1/acl/binding-rules").await.json() == json!([]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // No request shows that the mark of the removal is deleted, which comes next. A start goes on with it.
    let mut acl = acl;
    let mut counts = [usize::MAX; 4];
    for _ in 0..50 {
        acl = acl
            .restarted_with(async |store| {
                for (count, prefix) in counts.iter_mut().zip(["removal/", "binding-rule/", "token-login/", "token/"]) {
                    let page = Page { after: None, limit: 9 };
                    *count = store.list(prefix, page, Freshness::Linearizable).await.unwrap().entries.len();
                }
            })
            .await;
        if counts[0] == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(counts, [0, 0, 0, 2]);
}
