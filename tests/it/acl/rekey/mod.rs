//! Rotation of the sealing key while tokens are in use: none is lost, duplicated or left behind.

mod races;
mod served;
mod stopped;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use keyward_acl::store::{Batch, Embedded, Key, Store, Write};
use keyward_acl::{AclOptions, AclServer};
use keyward_machine::clock::{Clock, TestClock};
use keyward_telemetry::metrics::Metrics;
use serde_json::{Value, json};

use crate::harness::Answer;
use crate::harness::acl::options;
use crate::harness::served::Served;
use crate::harness::store_faults::StoreFaults;

/// Creates a store with its clock and directory.
fn store() -> (Arc<dyn Store>, TestClock, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder.path().join("store"), "dc1").unwrap();
    (Arc::new(store), TestClock::starting_at(SystemTime::now()), folder)
}

/// Builds a line of a key file.
fn line(digit: char) -> String {
    format!("{}\n", digit.to_string().repeat(64))
}

/// Writes a key file.
fn key_file(folder: &Path, name: &str, digits: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, digits.chars().map(line).collect::<String>()).unwrap();
    path
}

/// Options of a server with that key file.
fn with_key_file(key_file: &Path) -> AclOptions {
    AclOptions { key_file: Some(key_file.to_owned()), ..options(key_file.parent().unwrap()) }
}

async fn server(store: Arc<dyn Store>, key_file: &Path, clock: &TestClock) -> Served {
    Served::serve_store(store, &with_key_file(key_file), Clock::Test(clock.clone())).await
}

/// Starts a server without automatic deletions.
async fn quiet_server(store: Arc<dyn Store>, key_file: &Path, clock: &TestClock) -> Served {
    Served::without_background(store, &with_key_file(key_file), Clock::Test(clock.clone())).await
}

/// Returns the error of a server that cannot open the store with that key file.
async fn open_error(store: Arc<dyn Store>, key_file: &Path) -> String {
    let options = with_key_file(key_file);
    AclServer::with_store(store, &options, Clock::System, Metrics::default()).await.unwrap_err().to_string()
}

fn secret_of(token: &Value) -> String {
    token["SecretID"].as_str().unwrap().to_owned()
}

fn path_of(token: &Value) -> String {
    format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap())
}

/// Creates the bootstrap token; returns its secret.
async fn bootstrap(server: &Served) -> String {
    secret_of(&server.call("PUT", "/v1/acl/bootstrap", None, None).await.json())
}

async fn put(server: &Served, root: &str, path: &str, body: Value) -> Value {
    let response = server.call("PUT", path, Some(root), Some(body)).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

async fn token(server: &Served, root: &str, description: &str) -> Value {
    put(server, root, "/v1/acl/token", json!({"Description": description})).await
}

async fn rekey(server: &Served, root: &str, generate: bool) -> Answer {
    server.call("PUT", "/v1/operator/rekey", Some(root), Some(json!({"Generate": generate}))).await
}

/// Rotates the key; returns the response, in which no token is left behind.
async fn complete_rekey(server: &Served, root: &str, generate: bool) -> Value {
    let response = rekey(server, root, generate).await;
    assert_eq!((response.status, &response.json()["Done"]), (200, &json!(true)), "{response:?}");
    response.json()
}

/// Checks that the secret is accepted, and can be decrypted; returns its token.
async fn check_token(server: &Served, secret: &str) -> Value {
    let response = server.call("GET", "/v1/acl/token/self", Some(secret), None).await;
    assert_eq!(response.status, 200, "{response:?}");
    let token = response.json();
    assert_eq!(token["SecretID"], secret);
    token
}

async fn is_unknown(server: &Served, secret: &str) {
    let response = server.call("GET", "/v1/acl/roles?stale", Some(secret), None).await;
    assert_eq!((response.status, response.text.as_str()), (403, "ACL not found"), "{response:?}");
}

async fn namespace_is_gone(server: &Served, root: &str, name: &str) {
    for _ in 0..500 {
        if server.call("GET", &format!("/v1/namespace/{name}"), Some(root), None).await.status == 404 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{name} is still there");
}

async fn records(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
    let mut export = store.export().await.unwrap();
    let all = export.next(100_000).await.unwrap();
    all.into_iter().map(|(key, record)| (key.as_str().to_owned(), record.value.to_vec())).collect()
}

/// Returns the key ids of the store and its tokens, the key record's first one in front. Checks that each token has its
/// two index entries and that there are no others.
async fn keys_in_use(store: &dyn Store) -> Vec<String> {
    let all = records(store).await;
    let named = all.iter().find(|(key, _)| key == "seal/key").unwrap();
    let mut named: Vec<String> = String::from_utf8(named.1.clone()).unwrap().split(' ').map(str::to_owned).collect();
    let tokens: Vec<Value> = all
        .iter()
        .filter(|(key, _)| key.starts_with("token/"))
        .map(|(_, value)| serde_json::from_slice(value).unwrap())
        .collect();
    let accessors: BTreeSet<_> = tokens.iter().map(|token| token["immutable"]["accessor_id"].to_string()).collect();
    let rows: Vec<Value> = all
        .iter()
        .filter(|(key, _)| key.starts_with("token-id/"))
        .map(|(_, value)| serde_json::from_slice(value).unwrap())
        .collect();
    assert_eq!(rows.len(), 2 * tokens.len(), "each token is found by its secret and by its accessor, and nothing else");
    assert!(rows.iter().all(|row| accessors.contains(&row["accessor"].to_string())));
    for token in tokens {
        let id = token["immutable"]["sealed_secret"]["key_id"].as_str().unwrap().to_owned();
        if !named.contains(&id) {
            named.push(id);
        }
    }
    named
}
