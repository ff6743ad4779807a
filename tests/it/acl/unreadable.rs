//! Damaged records: each is reported once, and all others are served.

use std::time::Duration;

use keyward_acl::store::{Batch, Freshness, Key, Page, Store, Write};
use serde_json::json;

use crate::harness::{Acl, issuer, log};

/// Key of the anonymous token.
const ANONYMOUS: &str = "token/default/00000000-0000-0000-0000-000000000002";

/// Makes one record of each kind unreadable; returns their keys.
async fn damage(store: &dyn Store, kinds: &[&str]) -> Vec<Key> {
    let mut damaged = Vec::new();
    for kind in kinds {
        let page = Page { after: None, limit: 100 };
        let listing = store.list(&format!("{kind}/"), page, Freshness::Linearizable).await.unwrap();
        let holds = |value: &[u8]| String::from_utf8_lossy(value).contains("to-be-damaged");
        let found = listing.entries.into_iter().find(|(_, record)| holds(&record.value));
        damaged.push(found.unwrap_or_else(|| panic!("there is no such {kind}")).0);
    }
    let writes = damaged.iter().map(|key| Write::Put(key.clone(), b"nonsense".to_vec())).collect();
    store.commit(Batch { checks: Vec::new(), writes }).await.unwrap();
    damaged
}

#[tokio::test]
async fn records_that_link_an_unreadable_one_stay_readable() {
    let acl = Acl::start().await;
    let policy = acl.make("/v1/acl/policy", json!({"Name": "bad", "Description": "to-be-damaged"})).await;
    let links = json!([{"Name": "bad"}]);
    let bad = acl.make("/v1/acl/role", json!({"Name": "bad", "Description": "to-be-damaged"})).await;
    let role = acl.make("/v1/acl/role", json!({"Name": "good", "Policies": links})).await;
    let token = acl.make("/v1/acl/token", json!({"Policies": links, "Roles": links, "Description": "it"})).await;
    acl.make("/v1/namespace", json!({"Name": "team", "ACLs": {"PolicyDefaults": links}})).await;

    let acl = acl
        .restarted_with(async |store| {
            damage(&*store, &["policy", "role"]).await;
        })
        .await;
    let nameless = json!([{"ID": policy["ID"], "Name": ""}]);
    let listed = |path: &'static str| {
        let acl = &acl;
        async move {
            let response = acl.get(path).await;
            assert_eq!(response.status, 200, "{path}: {response:?}");
            let has_header = response.headers.contains_key("x-service-results-unreadable");
            (response.json().as_array().unwrap().clone(), has_header)
        }
    };
    let (roles, has_header) = listed("/v1/acl/roles").await;
    assert_eq!((roles.len(), &roles[0]["Policies"], has_header), (1, &nameless, true));
    let (policies, has_header) = listed("/v1/acl/policies").await;
    assert!(has_header && policies.iter().all(|policy| policy["Name"] != "bad"), "{policies:?}");
    // These are complete: none of the unreadable records belongs to them.
    let (tokens, has_header) = listed("/v1/acl/tokens").await;
    let found = tokens.iter().find(|found| found["AccessorID"] == token["AccessorID"]).unwrap();
    assert_eq!(
        (&found["Policies"], &found["Roles"], has_header),
        (&nameless, &json!([{"ID": bad["ID"], "Name": ""}]), false)
    );
    let (namespaces, has_header) = listed("/v1/namespaces").await;
    assert_eq!((&namespaces[1]["ACLs"]["PolicyDefaults"], has_header), (&nameless, false));

    // A record can be written back as read, and keeps its links.
    for path in [
        format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap()),
        format!("/v1/acl/role/{}", role["ID"].as_str().unwrap()),
    ] {
        let read = acl.get(&path).await;
        assert_eq!((read.status, &read.json()["Policies"]), (200, &nameless), "{path}");
        assert_eq!(acl.make(&path, read.json()).await["Policies"], nameless, "{path}");
    }
    // The unreadable policy may deny something: its tokens are refused.
    let secret = token["SecretID"].as_str().unwrap();
    assert_eq!(acl.call("GET", "/v1/acl/roles", Some(secret), None).await.status, 500);
}

/// Removes the last record of a kind, or flips a bit of it, in the store's file.
#[cfg(feature = "dev")]
fn tamper(folder: &std::path::Path, kind: &str, removes: bool) {
    use redb::ReadableTable as _;

    let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("records");
    let database = redb::Database::open(folder.join("acl.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut records = transaction.open_table(table).unwrap();
        let (key, mut bytes) = {
            let all = records.iter().unwrap().map(Result::unwrap);
            let (key, bytes) = all.filter(|(key, _)| key.value().starts_with(kind)).last().unwrap();
            (key.value().to_owned(), bytes.value().to_vec())
        };
        *bytes.last_mut().unwrap() ^= 1;
        if removes {
            records.remove(key.as_str()).unwrap();
        } else {
            records.insert(key.as_str(), bytes.as_slice()).unwrap();
        }
    }
    transaction.commit().unwrap();
}

#[cfg(feature = "dev")]
#[test]
fn damage_is_reported_by_verify_and_in_list_headers() {
    use crate::acl::server_process::serve;
    use crate::harness::binary::{eventually, run};

    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("acl");
    let root = folder.path().join("root.token").display().to_string();
    let dir = data_dir.display().to_string();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let by = |address: &str, words: &[&str]| {
        run(&[&["acl"][..], words, &["--address", address, "--token-file", &root]].concat(), &[])
    };
    let (code, _, error) = run(&["acl", "bootstrap", "--address", &address, "--out", &root], &[]);
    assert_eq!(code, 0, "{error}");
    for name in ["one", "two"] {
        let (code, _, error) = by(&address, &["role", "create", name]);
        assert_eq!(code, 0, "{error}");
    }
    let (code, out, error) = by(&address, &["verify"]);
    assert!(code == 0 && out.contains("0 of them without a checksum; 0 are damaged"), "{out} {error}");
    let (code, _, error) = run(&["acl", "verify", "--address", &address], &[]);
    assert!(code == 6 && error.contains("operator:read"), "{error}");
    let (code, _, error) = run(&["acl", "verify", "--dir", &dir], &[]);
    assert!(code == 1 && error.contains("in use by another process") && error.contains("[KW-1601]"), "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
    let (code, out, error) = run(&["acl", "verify", "--dir", &dir, "--format", "json"], &[]);
    assert!(code == 0 && out.contains("\"Clean\": true"), "{out} {error}");

    tamper(&data_dir, "role/", true);
    tamper(&data_dir, "role/", false);
    tamper(&data_dir, "policy/", false);
    let (code, out, error) = run(&["acl", "verify", "--dir", &dir], &[]);
    assert!(code == 1 && error.contains("the store is damaged: restore an earlier snapshot"), "{error}");
    assert!(
        out.contains("damaged: policy/default/") && out.contains("records are missing or were replaced: role"),
        "{out}"
    );

    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    eventually(Duration::from_secs(30), || {
        let output = service.output();
        let events = ["acl.store.verified", "acl.store.damaged", "acl.record.unreadable"];
        events.iter().all(|event| output.contains(event)).then_some(()).ok_or(output)
    });
    let (code, out, error) = by(&address, &["role", "list"]);
    assert!(
        code == 0 && error.contains("the list is incomplete: the server cannot read some records"),
        "{out} {error}"
    );
    let (code, out, _) = by(&address, &["verify"]);
    assert!(code == 1 && out.contains("damaged: policy/default/"), "{out}");
    let role = out.lines().find_map(|line| line.strip_prefix("damaged: role/default/")).unwrap();
    let (code, _, error) = by(&address, &["role", "delete", role]);
    assert_eq!(code, 0, "{error}");
    let (_, out, _) = by(&address, &["verify"]);
    assert!(out.contains("damaged: policy/default/") && !out.contains("role/default/"), "{out}");
    let snapshot = folder.path().join("snapshot").display().to_string();
    let (code, _, error) =
        run(&["acl", "backup", "--out", &snapshot, "--address", &address, "--token-file", &root], &[]);
    assert!(
        code != 0 && !std::path::Path::new(&snapshot).exists(),
        "a snapshot of damaged records would be taken for complete: {error}"
    );
    assert_eq!(service.stop().0.code(), Some(0));
}

#[tokio::test]
async fn a_token_with_an_undecryptable_secret_stays_listed() {
    let acl = Acl::start().await;
    let token = acl.make("/v1/acl/token", json!({})).await;
    let key: Key = format!("token/default/{}", token["AccessorID"].as_str().unwrap()).into();
    let acl = acl
        .restarted_with(async |store| {
            let record = store.get(&key, Freshness::Linearizable).await.unwrap().unwrap();
            let mut record: serde_json::Value = serde_json::from_slice(&record.value).unwrap();
            let sealed = find(&mut record, "sealed").unwrap();
            *sealed = json!("AAAA");
            let writes = vec![Write::Put(key.clone(), record.to_string().into_bytes())];
            store.commit(Batch { checks: Vec::new(), writes }).await.unwrap();
        })
        .await;
    let listed = acl.get("/v1/acl/tokens").await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let listed = listed.json();
    let secrets =
        |secret_id: &str| listed.as_array().unwrap().iter().filter(|token| token["SecretID"] == secret_id).count();
    assert_eq!((secrets("<hidden>"), secrets(&acl.root)), (1, 1), "{listed}");
    // The token still works, and can be deleted.
    let secret = token["SecretID"].as_str().unwrap();
    assert!(acl.call("GET", "/v1/acl/tokens", Some(secret), None).await.text.contains("lacks permission"));
    let path = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
    assert_eq!(acl.delete(&path).await.text, "true");
}

/// Finds a field by name at any depth.
fn find<'a>(value: &'a mut serde_json::Value, name: &str) -> Option<&'a mut serde_json::Value> {
    let map = value.as_object_mut()?;
    if map.contains_key(name) && !map[name].is_object() {
        return map.get_mut(name);
    }
    map.values_mut().find_map(|inner| find(inner, name))
}

#[tokio::test]
async fn an_unreadable_record_is_logged_and_counted_and_others_are_served() {
    log::keep();
    let acl = Acl::start().await;
    let key = issuer::Key::shared("one");
    acl.jwt_method("fleet", &key).await;
    let rule = json!({
        "AuthMethod": "fleet", "BindType": "service", "BindName": "other", "Description": "to-be-damaged",
    });
    acl.make("/v1/acl/binding-rule", rule).await;
    acl.make("/v1/acl/role", json!({"Name": "good"})).await;
    let role = acl.make("/v1/acl/role", json!({"Name": "bad", "Description": "to-be-damaged"})).await;
    let policy = acl.make("/v1/acl/policy", json!({"Name": "bad", "Description": "to-be-damaged"})).await;
    let short = json!({"Description": "to-be-damaged", "ExpirationTTL": "1m"});
    let token = acl.make("/v1/acl/token", short).await;
    let other = acl.make("/v1/acl/token", json!({"Description": "ends", "ExpirationTTL": "2m"})).await;

    let mut keys = Vec::new();
    let acl = acl
        .restarted_with(async |store| keys = damage(&*store, &["role", "policy", "token", "binding-rule"]).await)
        .await;
    for _ in 0..3 {
        let names = |list: serde_json::Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|entry| entry["Name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(acl.get("/v1/acl/roles").await.json()), ["good"]);
        let policies = names(acl.get("/v1/acl/policies").await.json());
        assert!(!policies.is_empty() && !policies.contains(&"bad".to_owned()), "{policies:?}");
        let tokens = acl.get("/v1/acl/tokens").await;
        assert_eq!(tokens.status, 200, "{tokens:?}");
        assert!(tokens.text.contains(other["AccessorID"].as_str().unwrap()), "{tokens:?}");
        assert!(!tokens.text.contains(token["AccessorID"].as_str().unwrap()), "{tokens:?}");
        assert_eq!(acl.get("/v1/acl/binding-rules").await.json().as_array().unwrap().len(), 1);
        // Logins work without the links of the damaged rule.
        let login = acl.log_in("fleet", &acl.proof(&key)).await;
        assert_eq!(login.json()["ServiceIdentities"].as_array().unwrap().len(), 1, "{login:?}");
    }
    // A read of the damaged record is no 404.
    for path in [format!("role/{}", role["ID"].as_str().unwrap()), format!("policy/{}", policy["ID"].as_str().unwrap())]
    {
        assert_eq!(acl.get(&format!("/v1/acl/{path}")).await.status, 500, "{path}");
    }
    // The sweep deletes the other expired tokens.
    let ended = other["AccessorID"].as_str().unwrap().to_owned();
    acl.clock.suspend(Duration::from_mins(5));
    let deleted = async {
        while !acl.metrics.text().contains("keyward_acl_tokens_swept_total 1") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), deleted).await.expect("it is swept");
    assert_eq!(acl.delete(&format!("/v1/acl/token/{ended}")).await.text, "false", "it is gone");

    let text = log::text();
    for key in &keys {
        let events = text.lines().filter(|line| line.contains("acl.record.unreadable") && line.contains(key.as_str()));
        assert_eq!(events.count(), 1, "{}", key.as_str());
    }
    let metrics = acl.metrics.text();
    assert!(metrics.contains("keyward_acl_unreadable_records_total 4"), "{metrics}");
}

#[tokio::test]
async fn an_unreadable_record_is_deleted_and_frees_its_name_unless_it_is_built_in() {
    let acl = Acl::start().await;
    acl.jwt_method("fleet", &issuer::Key::shared("one")).await;
    let reader = acl.token_with("acl = \"read\"").await;
    let named = json!({"Name": "bad", "Description": "to-be-damaged"});
    let rule = json!({
        "AuthMethod": "fleet", "BindType": "service", "BindName": "other", "Description": "to-be-damaged",
    });
    let token = json!({"Description": "to-be-damaged"});
    let mut paths = Vec::new();
    for (kind, body, id) in [
        ("role", &named, "ID"),
        ("policy", &named, "ID"),
        ("binding-rule", &rule, "ID"),
        ("token", &token, "AccessorID"),
    ] {
        let made = acl.make(&format!("/v1/acl/{kind}"), body.clone()).await;
        paths.push(format!("/v1/acl/{kind}/{}", made[id].as_str().unwrap()));
    }
    let acl = acl
        .restarted_with(async |store| {
            damage(&*store, &["role", "policy", "binding-rule", "token"]).await;
            for built_in in ["policy/default/00000000-0000-0000-0000-000000000002", ANONYMOUS] {
                let writes = vec![Write::Put(built_in.to_owned().into(), b"nonsense".to_vec())];
                store.commit(Batch { checks: Vec::new(), writes }).await.unwrap();
            }
        })
        .await;
    for path in &paths {
        assert_eq!(acl.call("DELETE", path, Some(&reader), None).await.status, 403, "{path}");
        for expected in ["true", "false"] {
            let deleted = acl.delete(path).await;
            assert_eq!((deleted.status, deleted.text.as_str()), (200, expected), "{path}");
        }
    }
    for kind in ["role", "policy"] {
        acl.make(&format!("/v1/acl/{kind}"), named.clone()).await;
    }
    for (path, status) in [
        ("/v1/acl/policy/00000000-0000-0000-0000-000000000002", 500),
        ("/v1/acl/token/00000000-0000-0000-0000-000000000002", 400),
    ] {
        assert_eq!(acl.delete(path).await.status, status, "{path}");
    }
}
