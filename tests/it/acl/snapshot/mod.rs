//! Export and restore of snapshots over HTTP.

mod damage;
mod keys;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "dev")]
mod process;
mod restore_lock;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use keyward_acl::model::snapshot::{SnapshotHeader, SnapshotPiece, SnapshotReader, SnapshotWriter};
use serde_json::{Value, json};

use crate::harness::Acl;
use crate::harness::issuer::Key;

/// Starts a server with its key file in `folder`.
async fn with_key_in(folder: &Path) -> Acl {
    Acl::start_with(|options| options.key_file = Some(folder.join("seal.key"))).await
}

/// Parses header and records of a snapshot.
fn read(snapshot: &[u8]) -> (SnapshotHeader, Vec<(String, Vec<u8>)>) {
    let mut reader = SnapshotReader::default();
    reader.feed(snapshot);
    let Some(SnapshotPiece::Header(header)) = reader.piece().unwrap() else { panic!("no header") };
    let mut records = Vec::new();
    while let Some(piece) = reader.piece().unwrap() {
        if let SnapshotPiece::Record(key, value) = piece {
            records.push((key, value));
        }
    }
    assert_eq!(reader.finish().unwrap(), records.len() as u64);
    (header, records)
}

/// Builds a snapshot of a header and records.
fn written(header: &SnapshotHeader, records: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = SnapshotWriter::begin(header, &mut bytes).unwrap();
    for (key, value) in records {
        writer.record(key, value, &mut bytes).unwrap();
    }
    writer.end(&mut bytes);
    bytes
}

/// Creates records of each kind; returns the secrets of the tokens.
async fn make_some_of_each(acl: &Acl) -> Vec<String> {
    let secret = |token: &Value| token["SecretID"].as_str().unwrap().to_owned();
    let rules = "service_prefix \"\" { policy = \"read\" }";
    acl.make("/v1/acl/policy", json!({"Name": "readers", "Rules": rules})).await;
    let defaults = json!({"PolicyDefaults": [{"Name": "readers"}]});
    acl.make("/v1/namespace", json!({"Name": "Team", "Meta": {"owner": "ops"}, "ACLs": defaults})).await;
    acl.make("/v1/acl/role", json!({"Name": "on-call", "Policies": [{"Name": "readers"}]})).await;
    acl.make("/v1/acl/role?ns=team", json!({"Name": "web", "ServiceIdentities": [{"ServiceName": "web"}]})).await;
    let body = json!({"Roles": [{"Name": "on-call"}], "ExpirationTTL": "8h", "Description": "ends"});
    let ends = acl.make("/v1/acl/token", body).await;
    let local = acl.make("/v1/acl/token?ns=team", json!({"Roles": [{"Name": "web"}], "Local": true})).await;
    let key = Key::new("k1");
    acl.jwt_method("ci", &key).await;
    let login = acl.log_in("ci", &acl.proof(&key)).await;
    assert_eq!(login.status, 200, "{login:?}");
    vec![acl.root.clone(), secret(&ends), secret(&local), secret(&login.json())]
}

/// Returns everything that the API lists, without indexes.
async fn visible_state(acl: &Acl, token: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in ["tokens", "roles", "policies", "auth-methods", "binding-rules"] {
        let list = acl.call("GET", &format!("/v1/acl/{kind}?ns=*"), Some(token), None).await;
        assert_eq!(list.status, 200, "{list:?}");
        all.push(list.json());
    }
    all.push(acl.call("GET", "/v1/namespaces", Some(token), None).await.json());
    for list in &mut all {
        assert!(!list.as_array().unwrap().is_empty());
        for one in list.as_array_mut().unwrap() {
            one.as_object_mut().unwrap().retain(|name, _| !name.ends_with("Index"));
        }
    }
    all
}

async fn can_decrypt(acl: &Acl, secret: &str) -> bool {
    acl.call("GET", "/v1/acl/token/self", Some(secret), None).await.status == 200
}

fn index(response: &crate::harness::Answer) -> u64 {
    response.headers["x-service-index"].to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_restore_brings_back_exactly_the_records_of_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let acl = with_key_in(folder.path()).await;
    let secrets = make_some_of_each(&acl).await;
    let before = visible_state(&acl, &acl.root).await;
    let snapshot = acl.snapshot().await;
    let (header, records) = read(&snapshot);
    assert_eq!((header.datacenter.as_str(), header.key_ids.len()), ("dc1", 1));

    let late = acl.make("/v1/acl/token", json!({})).await;
    let late = late["SecretID"].as_str().unwrap();
    acl.make("/v1/acl/role", json!({"Name": "late"})).await;
    acl.make("/v1/namespace", json!({"Name": "late"})).await;
    let ends = acl.call("GET", "/v1/acl/token/self", Some(&secrets[1]), None).await.json();
    acl.delete(&format!("/v1/acl/token/{}", ends["AccessorID"].as_str().unwrap())).await;
    acl.delete("/v1/acl/auth-method/ci").await;
    acl.make("/v1/namespace/team", json!({"Description": "changed"})).await;
    assert!(
        can_decrypt(&acl, late).await && !can_decrypt(&acl, &secrets[1]).await && !can_decrypt(&acl, &secrets[3]).await
    );

    let newest = index(&acl.get("/v1/acl/roles").await);
    let restored = acl.restore(&acl.root, &snapshot).await;
    assert_eq!((restored.status, &restored.json()["Records"]), (200, &json!(records.len())), "{restored:?}");
    assert_eq!(visible_state(&acl, &acl.root).await, before);
    for secret in &secrets {
        assert!(can_decrypt(&acl, secret).await);
    }
    assert!(!can_decrypt(&acl, late).await);
    let role = acl.get("/v1/acl/role/name/on-call").await;
    assert!(role.json()["ModifyIndex"].as_u64().unwrap() > newest, "{role:?}");
    assert!(index(&role) > newest && restored.json()["Index"].as_u64().unwrap() > newest, "indexes go on");
    let again = acl.call("PUT", "/v1/acl/bootstrap", None, None).await;
    assert_eq!(again.status, 403, "{again:?}");

    // Restored records are byte-identical, also on another server and after a restart.
    let same = |snapshot: &[u8]| assert!(read(snapshot).1 == records);
    same(&acl.snapshot().await);
    let mut other = with_key_in(folder.path()).await;
    let first = std::mem::replace(&mut other.root, acl.root.clone());
    assert_eq!(other.restore(&first, &snapshot).await.status, 200);
    assert!(!can_decrypt(&other, &first).await);
    assert_eq!(visible_state(&other, &other.root).await, before);
    let other = other.restarted().await;
    assert_eq!(visible_state(&other, &other.root).await, before);
    same(&other.snapshot().await);
    other.make("/v1/acl/role?ns=team", json!({"Name": "goes-on"})).await;
}

#[tokio::test]
async fn no_secret_is_in_a_snapshot_and_without_its_key_it_is_refused() {
    let acl = Acl::start().await;
    let secrets = make_some_of_each(&acl).await;
    let snapshot = acl.snapshot().await;
    let holds = |text: &str| snapshot.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("on-call"), "names are no secrets");
    for secret in &secrets {
        assert!(!holds(secret) && !holds(&secret.replace('-', "")));
    }
    let key = std::fs::read_to_string(acl.options.store.folder().unwrap().join("seal.key")).unwrap();
    assert!(!holds(key.trim()));

    let other = Acl::start().await;
    let (before, there) = read(&other.snapshot().await);
    let refused = other.restore(&other.root, &snapshot).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("which is not in this server's key file"), "{refused:?}");
    let (after, still) = read(&other.snapshot().await);
    assert!(after.revision == before.revision && still == there, "nothing was changed");
}

#[tokio::test]
async fn export_and_restore_require_operator_write_and_acl_write() {
    let acl = Acl::start().await;
    acl.make("/v1/namespace", json!({"Name": "team"})).await;
    let snapshot = acl.snapshot().await;
    let both = "acl = \"write\" operator = \"write\"";
    let mut refused = vec![("of no one".to_owned(), None)];
    for rules in ["acl = \"write\"", "operator = \"write\"", "acl = \"write\" operator = \"read\""] {
        refused.push((rules.to_owned(), Some(acl.token_with(rules).await)));
    }
    refused.push(("of team".to_owned(), Some(acl.token_in("team", both).await)));
    refused.push(("unknown".to_owned(), Some(uuid::Uuid::new_v4().to_string())));
    for (which, token) in refused {
        let taken = acl.call("GET", "/v1/snapshot", token.as_deref(), None).await;
        assert_eq!(taken.status, 403, "{which}: {taken:?}");
        let headers: Vec<_> = token.iter().map(|token| ("X-Service-Token", token.as_str())).collect();
        let restored = acl.send("PUT", "/v1/snapshot", &headers, &snapshot).await;
        assert_eq!(restored.status, 403, "{which}: {restored:?}");
    }
    let token = acl.token_with(both).await;
    assert_eq!(acl.call("GET", "/v1/snapshot?ns=team", Some(&token), None).await.status, 200);
    assert_eq!(acl.restore(&token, &snapshot).await.status, 200);
    let refused = acl.call("POST", "/v1/snapshot", Some(&acl.root), None).await;
    assert_eq!((refused.status, refused.headers["allow"].to_str().unwrap()), (405, "OPTIONS,GET,PUT"));
}

#[tokio::test]
async fn more_namespaces_than_fit_a_batch_are_restored() {
    let acl = Acl::start().await;
    let empty = acl.snapshot().await;
    let (header, mut records) = read(&empty);
    for number in 0..300 {
        let name = format!("n{number}");
        let record = json!({"name": name, "description": "d".repeat(9000)});
        records.push((format!("namespace/{name}"), record.to_string().into_bytes()));
    }
    records.sort();
    assert_eq!(acl.restore(&acl.root, &written(&header, &records)).await.status, 200);
    assert!(read(&acl.snapshot().await).1 == records);
    assert_eq!(acl.get("/v1/namespaces").await.json().as_array().unwrap().len(), 301);
    acl.make("/v1/acl/role?ns=n299", json!({"Name": "r"})).await;
    assert_eq!(acl.restore(&acl.root, &empty).await.status, 200);
    assert!(read(&acl.snapshot().await).1 == read(&empty).1);
}

#[tokio::test]
async fn a_snapshot_is_consistent_during_concurrent_writes() {
    let acl = Acl::start().await;
    for number in 0..400 {
        acl.make("/v1/acl/role", json!({"Name": format!("old-{number}")})).await;
    }
    let done = AtomicBool::new(false);
    let writer = async {
        for number in 1..=40 {
            acl.make("/v1/acl/role", json!({"Name": format!("new-{number:06}")})).await;
            acl.make("/v1/acl/token", json!({"Description": format!("{number}")})).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let taker = async {
        let mut snapshots = Vec::new();
        while !done.load(Ordering::Relaxed) {
            snapshots.push(acl.snapshot().await);
        }
        snapshots
    };
    let ((), snapshots) = tokio::join!(writer, taker);
    assert!(snapshots.len() > 2, "{} were taken meanwhile", snapshots.len());
    let mut newest = 0;
    for snapshot in &snapshots {
        let (header, records) = read(snapshot);
        let of = |kind: &str| records.iter().filter(|(key, _)| key.starts_with(kind)).count();
        assert_eq!(of("token-id/"), 2 * of("token/"), "each token with both of its rows");
        assert_eq!(of("role-name/"), of("role/"));
        // A single sequential writer: the snapshot holds a prefix of its writes.
        let new = of("role-name/default/new-");
        let last = records.iter().rfind(|(key, _)| key.starts_with("role-name/default/new-"));
        assert!(last.is_none_or(|(key, _)| key.ends_with(&format!("{new:06}"))), "{new} roles");
        let tokens = of("token/") - 2;
        assert!(tokens == new || tokens + 1 == new, "{new} roles, {tokens} tokens");
        assert!(header.revision > 400);
        newest = newest.max(new);
    }
    assert!(newest > 0);
    let last = snapshots.last().unwrap();
    assert_eq!(acl.restore(&acl.root, last).await.status, 200);
    assert!(read(&acl.snapshot().await).1 == read(last).1);
}
