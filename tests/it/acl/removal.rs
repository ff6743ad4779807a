//! Deletion of namespaces: closed at once, removed in the background, also across failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use keyward_acl::model::timestamp::Timestamp;
use keyward_acl::store::{Batch, Embedded, Freshness, Key, Page, Store, Write};
use keyward_machine::clock::Clock;
use serde_json::{Value, json};

use crate::harness::acl::options;
use crate::harness::issuer::Key as IssuerKey;
use crate::harness::served::Served;
use crate::harness::store_faults::StoreFaults;
use crate::harness::{Acl, log};

/// Creates an unreadable token of `team`, which stops the removal.
const UNREADABLE: &str = "token/team/11111111-1111-1111-1111-111111111111";

async fn put(store: &dyn Store, key: &str, value: &[u8]) {
    let writes = vec![Write::Put(Key::from(key.to_owned()), value.to_vec())];
    store.commit(Batch { checks: vec![], writes }).await.unwrap();
}

/// All keys but those of the namespace `default`.
async fn keys(store: &dyn Store) -> Vec<String> {
    let mut export = store.export().await.unwrap();
    let all = export.next(100_000).await.unwrap();
    all.into_iter().map(|(key, _)| key.as_str().to_owned()).filter(|key| !key.contains("default")).collect()
}

/// Waits until the namespace does not exist.
pub(crate) async fn wait_until_gone(acl: &Acl, name: &str) {
    let mut index = 1;
    for _ in 0..50 {
        let read = acl.get(&format!("/v1/namespace/{name}?index={index}&wait=10s")).await;
        if read.status == 404 {
            return;
        }
        index = read.headers["x-service-index"].to_str().unwrap().parse().unwrap();
    }
    panic!("{name} is still there");
}

/// Creates a namespace `Team` with a record of each kind; returns the secret of one of its tokens.
async fn team(acl: &Acl) -> String {
    acl.make("/v1/namespace", json!({"Name": "Team"})).await;
    let secret = acl.token_in("team", "acl = \"write\"").await;
    acl.make("/v1/acl/role?ns=team", json!({"Name": "r", "ServiceIdentities": [{"ServiceName": "web"}]})).await;
    acl.make("/v1/acl/token?ns=team", json!({"Roles": [{"Name": "r"}], "ExpirationTTL": "5m"})).await;
    acl.make("/v1/acl/token?ns=team", json!({"Local": true})).await;
    let key = IssuerKey::shared("k");
    let config = json!({"JWTValidationPubKeys": [key.pem()], "BoundIssuer": "i", "BoundAudiences": ["a"]});
    acl.make("/v1/acl/auth-method?ns=team", json!({"Name": "people", "Type": "jwt", "Config": config})).await;
    let rule = json!({"AuthMethod": "people", "BindType": "role", "BindName": "r"});
    acl.make("/v1/acl/binding-rule?ns=team", rule).await;
    let now = Timestamp::from_system_time(SystemTime::now()).unix_seconds();
    let proof = key.sign(&json!({"iss": "i", "aud": "a", "exp": now + 600, "iat": now}));
    let login = json!({"AuthMethod": "people", "BearerToken": proof});
    assert_eq!(acl.call("POST", "/v1/acl/login?ns=team", None, Some(login)).await.status, 200);
    assert_eq!(acl.call("GET", "/v1/acl/roles", Some(&secret), None).await.status, 200);
    secret
}

#[tokio::test]
async fn a_deleted_namespace_is_closed_at_once_and_removed_with_its_contents() {
    let acl = Acl::start().await;
    let mut before = vec![];
    let acl = acl.restarted_with(async |store| before = keys(&*store).await).await;
    let secret = team(&acl).await;
    let acl = acl.restarted_with(async |store| put(&*store, UNREADABLE, b"nonsense").await).await;

    let deleted = acl.delete("/v1/namespace/team").await;
    assert_eq!((deleted.status, deleted.text.as_str()), (200, ""), "{deleted:?}");
    assert!(!deleted.headers.contains_key("content-type") && !deleted.headers.contains_key("x-service-index"));
    let read = acl.get("/v1/namespace/team").await.json();
    let at: Timestamp = read["DeletedAt"].as_str().unwrap().parse().unwrap();
    assert!(Timestamp::from_system_time(SystemTime::now()).since(at) < Duration::from_mins(1), "{read}");
    assert_eq!(acl.get("/v1/namespaces").await.json()[1], read);
    let again = acl.delete("/v1/namespace/TEAM").await;
    assert_eq!((again.status, again.text.as_str()), (200, ""));
    assert_eq!(acl.get("/v1/namespace/team").await.json(), read, "a second deletion changes nothing");

    for (method, path, body) in [
        ("PUT", "/v1/namespace", json!({"Name": "team"})),
        ("PUT", "/v1/namespace/team", json!({"Description": "d"})),
        ("PUT", "/v1/acl/role?ns=team", json!({"Name": "other"})),
        ("PUT", "/v1/acl/policy", json!({"Name": "other", "Namespace": "team"})),
        ("PUT", "/v1/acl/token?ns=team", json!({})),
        ("DELETE", "/v1/acl/token/22222222-2222-2222-2222-222222222222?ns=team", Value::Null),
    ] {
        let response = acl.call(method, path, Some(&acl.root), Some(body)).await;
        assert_eq!(
            (response.status, response.text.as_str()),
            (409, "Namespace \"Team\" is marked for deletion"),
            "{path}"
        );
    }
    let refused = acl.call("GET", "/v1/acl/roles", Some(&secret), None).await;
    assert_eq!((refused.status, refused.text.as_str()), (403, "ACL not found"));
    assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(&secret), None).await.status, 404);
    assert_eq!(acl.get("/v1/acl/roles?ns=team").await.status, 200, "reads go on");

    // Readable records are removed despite unreadable ones; a restart continues.
    let left = ["namespace/team".to_owned(), UNREADABLE.to_owned()];
    for _ in 0..50 {
        if acl.get("/v1/acl/policies?ns=team").await.json() == json!([]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let acl = acl
        .restarted_with(async |store| {
            let found: Vec<String> = keys(&*store).await.into_iter().filter(|key| !before.contains(key)).collect();
            assert_eq!(found, left);
        })
        .await;
    let unblocked = acl.delete("/v1/acl/token/11111111-1111-1111-1111-111111111111?ns=team").await;
    assert_eq!((unblocked.status, unblocked.text.as_str()), (200, "true"), "{unblocked:?}");
    let acl = acl.restarted().await;
    wait_until_gone(&acl, "team").await;
    assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(&secret), None).await.status, 404);
    let gone_too = acl.get("/v1/acl/roles?ns=team").await;
    assert_eq!((gone_too.status, gone_too.text.as_str()), (404, "Namespace \"team\" does not exist"));

    // The name is free again, and so are ids and secrets of its records.
    let made = acl.make("/v1/namespace", json!({"Name": "team"})).await;
    assert_eq!((&made["Name"], made.get("DeletedAt")), (&json!("team"), None));
    acl.make("/v1/acl/token?ns=team", json!({"SecretID": secret})).await;
    let restarted = acl.restarted().await;
    assert_eq!(restarted.call("GET", "/v1/acl/token/self", Some(&secret), None).await.status, 200);
}

#[tokio::test]
async fn a_blocked_removal_does_not_block_others_and_is_retried() {
    let acl = Acl::start().await;
    team(&acl).await;
    acl.make("/v1/namespace", json!({"Name": "other"})).await;
    let acl = acl.restarted_with(async |store| put(&*store, UNREADABLE, b"nonsense").await).await;
    log::keep();
    assert_eq!(acl.delete("/v1/namespace/team").await.status, 200);
    let stuck = async |times: usize| {
        for _ in 0..100 {
            let lines = log::lines();
            let found = lines.iter().filter(|line| line["fields"]["event"] == "acl.removal.stuck");
            if found.clone().count() >= times {
                return found.cloned().collect::<Vec<_>>();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{}", log::text());
    };
    let line = stuck(1).await.remove(0);
    assert_eq!((&line["fields"]["namespace"], &line["fields"]["records"]), (&json!("Team"), &json!(1)), "{line}");
    assert_eq!(acl.delete("/v1/namespace/other").await.status, 200);
    wait_until_gone(&acl, "other").await;
    assert!(
        log::lines().iter().any(|line| {
            line["fields"]["event"] == "acl.namespace.removed" && line["fields"]["namespace"] == "other"
        })
    );
    let tried = stuck(2).await.len();
    acl.clock.suspend(Duration::from_secs(31));
    stuck(tried + 1).await;
    assert_eq!(acl.get("/v1/namespace/team").await.status, 200);
}

#[tokio::test]
async fn concurrent_removal_by_several_servers_spares_a_new_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let late = Arc::new(StoreFaults::with_delayed_read(&store, "role-name/team/"));
    let mut options = options(folder.path());
    options.key_file = Some(folder.path().join("seal.key"));
    let first = Served::without_background(store.clone(), &options, Clock::System).await;
    let root = first.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = root["SecretID"].as_str();
    let put = async |path: &str, body: Value| {
        let response = first.call("PUT", path, root, Some(body)).await;
        assert_eq!(response.status, 200, "{response:?}");
    };
    put("/v1/namespace", json!({"Name": "team"})).await;
    let before = keys(&*store).await;
    for number in 0..150 {
        put("/v1/acl/role?ns=team", json!({"Name": format!("r{number}")})).await;
    }
    for _ in 0..40 {
        put("/v1/acl/token?ns=team", json!({})).await;
    }
    assert!(keys(&*store).await.len() > before.len() + 400);

    // The slow server has read the names, and is paused.
    let _slow = Served::serve_store(late.clone(), &options, Clock::System).await;
    assert_eq!(first.call("DELETE", "/v1/namespace/team", root, None).await.status, 200);
    late.is_reached().await;
    let _others = [
        Served::serve_store(store.clone(), &options, Clock::System).await,
        Served::serve_store(store.clone(), &options, Clock::System).await,
    ];
    while first.call("GET", "/v1/namespace/team", root, None).await.status != 404 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(keys(&*store).await.len(), before.len() - 1);

    put("/v1/namespace", json!({"Name": "team"})).await;
    put("/v1/acl/role?ns=team", json!({"Name": "r1"})).await;
    late.release();
    while late.conflicts.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let found = first.call("GET", "/v1/acl/role/name/r1?ns=team", root, None).await;
    assert_eq!(found.status, 200, "a late server removed what is in the new namespace: {found:?}");
}

#[tokio::test]
async fn a_rule_of_a_deleted_method_is_not_revived_by_an_update_under_its_successor() {
    let acl = Acl::start().await;
    acl.jwt_method("people", &IssuerKey::shared("k")).await;
    let rule = json!({"AuthMethod": "people", "BindType": "service", "BindName": "other"});
    let id = acl.make("/v1/acl/binding-rule", rule.clone()).await["ID"].as_str().unwrap().to_owned();
    // As if the method had been created anew before the removal of the old one's rules was over.
    let acl = acl
        .restarted_with(async |store| {
            let key = "auth-method/default/people";
            let record = store.get(&Key::from(key.to_owned()), Freshness::Linearizable).await.unwrap().unwrap();
            let mut record: Value = serde_json::from_slice(&record.value).unwrap();
            record["id"] = json!("22222222-2222-2222-2222-222222222222");
            put(&*store, key, record.to_string().as_bytes()).await;
        })
        .await;
    let update = acl.put(&format!("/v1/acl/binding-rule/{id}"), rule).await;
    assert_eq!(update.status, 404, "{update:?}");
}

#[tokio::test]
async fn rules_of_a_deleted_method_are_not_shown_while_they_wait_for_their_removal() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let faults = Arc::new(StoreFaults::new(&store));
    let mut options = options(folder.path());
    options.key_file = Some(folder.path().join("seal.key"));
    let server = Served::without_background(faults.clone(), &options, Clock::System).await;
    let root = server.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = root["SecretID"].as_str();
    let put = async |path: &str, body: Value| {
        let response = server.call("PUT", path, root, Some(body)).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    };
    let get = async |path: &str| server.call("GET", path, root, None).await;
    let config = json!({"JWTValidationPubKeys": [IssuerKey::shared("k").pem()]});
    let method = |name: &str| json!({"Name": name, "Type": "jwt", "Config": config});
    let mut rules = vec![];
    for name in ["people", "others"] {
        put("/v1/acl/auth-method", method(name)).await;
        let rule = json!({"AuthMethod": name, "BindType": "service", "BindName": "web"});
        rules.push(put("/v1/acl/binding-rule", rule).await);
    }
    let path = |rule: &Value| format!("/v1/acl/binding-rule/{}", rule["ID"].as_str().unwrap());
    assert_eq!(get("/v1/acl/binding-rules").await.json().as_array().unwrap().len(), 2);

    // The deletion of the method is written, that of its rule is not.
    faults.batches.store(1, Ordering::SeqCst);
    let deleted = server.call("DELETE", "/v1/acl/auth-method/people", root, None).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (200, "true"));
    faults.batches.store(usize::MAX, Ordering::SeqCst);
    // A method created again under the name does not get the rule.
    for round in ["deleted", "created again"] {
        let left = store.list("binding-rule/", Page { after: None, limit: 9 }, Freshness::Linearizable).await.unwrap();
        assert_eq!(left.entries.len(), 2, "{round}");
        assert_eq!(get("/v1/acl/binding-rules").await.json(), json!([rules[1]]), "{round}");
        assert_eq!(get("/v1/acl/binding-rules?authmethod=people").await.json(), json!([]), "{round}");
        assert_eq!((get(&path(&rules[0])).await.status, get(&path(&rules[1])).await.status), (404, 200), "{round}");
        if round == "deleted" {
            put("/v1/acl/auth-method", method("people")).await;
        }
    }
}

#[tokio::test]
async fn the_removal_of_an_auth_method_continues_until_all_its_records_are_readable() {
    for prefix in ["binding-rule/", "token-login/"] {
        let acl = Acl::start().await;
        let key = IssuerKey::shared("k");
        acl.jwt_method("people", &key).await;
        let rule = json!({"AuthMethod": "people", "BindType": "service", "BindName": "other"});
        acl.make("/v1/acl/binding-rule", rule).await;
        for _ in 0..3 {
            assert_eq!(acl.log_in("people", &acl.proof(&key)).await.status, 200);
        }
        let under = async |store: &dyn Store, prefix: &str| {
            let page = Page { after: None, limit: 9 };
            store.list(prefix, page, Freshness::Linearizable).await.unwrap().entries
        };
        let mut damaged = None;
        let acl = acl
            .restarted_with(async |store| {
                let (key, record) = under(&*store, prefix).await.remove(0);
                put(&*store, key.as_str(), b"nonsense").await;
                damaged = Some((key, record.value));
            })
            .await;
        let (key, value) = damaged.unwrap();
        log::keep();
        assert_eq!(acl.delete("/v1/acl/auth-method/people").await.json(), json!(true));
        let failed = log::lines().into_iter().find(|line| line["fields"]["event"] == "acl.removal.failed");
        assert!(failed.is_some(), "{prefix}: {}", log::text());
        let acl = acl
            .restarted_with(async |store| {
                for (other, expected) in [("binding-rule/", 0), ("token-login/", 0), ("removal/", 1)] {
                    let expected = if other == prefix { 1 } else { expected };
                    assert_eq!(under(&*store, other).await.len(), expected, "{prefix}: {other}");
                }
                put(&*store, key.as_str(), &value).await;
            })
            .await;
        for _ in 0..500 {
            if log::text().contains("acl.method.removed") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        acl.restarted_with(async |store| {
            for (prefix, expected) in [("binding-rule/", 0), ("token-login/", 0), ("removal/", 0), ("token/", 2)] {
                assert_eq!(under(&*store, prefix).await.len(), expected, "{prefix}");
            }
        })
        .await;
    }
}
