//! An incomplete restore locks the service for everyone else.
#![expect(clippy::disallowed_methods, reason = "a restore is waited for in real time")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use keyward_acl::AclOptions;
use keyward_acl::store::{Batch, Embedded, Freshness, Key, Store, Write};
use keyward_machine::clock::Clock;
use serde_json::json;

use super::{Acl, can_decrypt, index, make_some_of_each, read, visible_state, written};
use crate::harness::acl::options;
use crate::harness::log;
use crate::harness::served::{Answer, Served};
use crate::harness::store_faults::StoreFaults;

/// Begins a restore that dies after its marker and a part of the records are written.
async fn break_off(store: &Arc<dyn Store>, options: &AclOptions, secret: &str, snapshot: &[u8]) {
    let faults = Arc::new(StoreFaults::new(store));
    let server = Served::without_background(faults.clone(), options, Clock::System).await;
    faults.batches.store(2, Ordering::SeqCst);
    let broken = server.send("PUT", "/v1/snapshot", &[("X-Service-Token", secret)], snapshot).await;
    assert_eq!(broken.status, 503, "{broken:?}");
}

/// A server on a store with faults, bootstrapped.
struct FaultyServer {
    folder: tempfile::TempDir,
    options: AclOptions,
    store: Arc<dyn Store>,
    faults: Arc<StoreFaults>,
    server: Served,
    /// Secret of its management token.
    root: String,
}

impl FaultyServer {
    async fn start(build: fn(&Arc<dyn Store>) -> StoreFaults) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = AclOptions { key_file: Some(folder.path().join("seal.key")), ..options(folder.path()) };
        let store: Arc<dyn Store> = Arc::new(Embedded::open(options.store.folder().unwrap(), "dc1").unwrap());
        let faults = Arc::new(build(&store));
        let server = Served::without_background(faults.clone(), &options, Clock::System).await;
        let root = server.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
        let root = root["SecretID"].as_str().unwrap().to_owned();
        Self { folder, options, store, faults, server, root }
    }

    async fn snapshot(&self) -> Vec<u8> {
        let url = format!("{}/v1/snapshot", self.server.url);
        let request = self.server.http.get(url).header("X-Service-Token", &self.root);
        request.send().await.unwrap().bytes().await.unwrap().to_vec()
    }

    /// Restores a snapshot, with this number of batches before the store fails.
    async fn restore(&self, batches: usize, snapshot: &[u8]) -> Answer {
        self.faults.batches.store(batches, Ordering::SeqCst);
        self.server.send("PUT", "/v1/snapshot", &[("X-Service-Token", &self.root)], snapshot).await
    }
}

/// Waits until the service is locked.
async fn wait_until_locked(acl: &Acl, token: &str) {
    let start = Instant::now();
    while acl.call("GET", "/v1/acl/roles", Some(token), None).await.status != 503 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const REQUESTS: [(&str, &str); 20] = [
    ("PUT", "/v1/acl/bootstrap"),
    ("GET", "/v1/acl/tokens"),
    ("GET", "/v1/acl/token/self"),
    ("PUT", "/v1/acl/token"),
    ("GET", "/v1/acl/roles?stale"),
    ("PUT", "/v1/acl/role"),
    ("DELETE", "/v1/acl/role/11111111-1111-1111-1111-111111111111"),
    ("GET", "/v1/acl/policies?index=100000&wait=10s"),
    ("GET", "/v1/namespaces"),
    ("PUT", "/v1/namespace"),
    ("GET", "/v1/acl/templated-policies"),
    ("POST", "/v1/acl/login"),
    ("POST", "/v1/acl/oidc/auth-url"),
    ("POST", "/v1/acl/oidc/callback"),
    ("POST", "/v1/acl/logout"),
    ("POST", "/v1/internal/acl/authorize"),
    ("GET", "/v1/auth/token/lookup-self"),
    ("POST", "/v1/auth/azure/login"),
    ("GET", "/v1/sys/health"),
    ("GET", "/v1/snapshot"),
];

#[tokio::test]
async fn after_an_interrupted_restore_only_its_token_may_restore() {
    let acl = Acl::start().await;
    let secrets = make_some_of_each(&acl).await;
    let other = acl.token_with("acl = \"write\" operator = \"write\"").await;
    let before = visible_state(&acl, &acl.root).await;
    let snapshot = acl.snapshot().await;
    let (options, root) = (acl.options.clone(), acl.root.clone());
    let mut acl = acl.restarted_with(async |store| break_off(&store, &options, &root, &snapshot).await).await;
    for _ in 0..2 {
        for (method, path) in REQUESTS {
            let response = acl.call(method, path, Some(&acl.root), None).await;
            assert_eq!(response.status, 503, "{method} {path}: {response:?}");
            assert!(response.headers.contains_key("retry-after"), "{method} {path}: {response:?}");
            assert!(response.text.contains("a snapshot restore is in progress"), "{method} {path}: {response:?}");
        }
        for token in [other.as_str(), secrets[1].as_str(), "nobody's"] {
            let refused = acl.restore(token, &snapshot).await;
            assert_eq!(refused.status, 403, "{refused:?}");
            assert!(refused.text.contains("only the token that started it may restore"), "{refused:?}");
        }
        let refused = acl.restore(&acl.root, &snapshot[..100]).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        acl = acl.restarted().await;
    }
    let restored = acl.restore(&acl.root, &snapshot).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    assert_eq!(visible_state(&acl, &acl.root).await, before);
    assert!(can_decrypt(&acl, &other).await);
    assert_eq!(acl.call("GET", "/v1/sys/health", None, None).await.status, 200);
    acl.make("/v1/acl/role", json!({"Name": "goes-on"})).await;
}

#[tokio::test]
async fn a_request_admitted_before_the_marker_cannot_write_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let options = AclOptions { key_file: Some(folder.path().join("seal.key")), ..options(folder.path()) };
    let data = options.store.folder().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(data, "dc1").unwrap());
    let faults = Arc::new(StoreFaults::with_delayed_read(&store, "namespace/after"));
    let slow = Served::serve_store(faults.clone(), &options, Clock::System).await;
    let root = slow.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = root["SecretID"].as_str().unwrap();
    let by_root = [("X-Service-Token", root)];
    let create = async |name: &str| slow.call("PUT", "/v1/namespace", Some(root), Some(json!({"Name": name}))).await;
    assert_eq!(create("before").await.status, 200);
    let snapshot = slow.http.get(format!("{}/v1/snapshot", slow.url)).header("X-Service-Token", root);
    let snapshot = snapshot.send().await.unwrap().bytes().await.unwrap();

    let (late, ()) = tokio::join!(create("after"), async {
        faults.is_reached().await;
        break_off(&store, &options, root, &snapshot).await;
        faults.release();
    });
    assert!(late.status == 503 && late.text.contains("a snapshot restore is in progress"), "{late:?}");
    let restored = slow.send("PUT", "/v1/snapshot", &by_root, &snapshot).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    assert_eq!(slow.call("GET", "/v1/namespace/after", Some(root), None).await.status, 404);
    assert_eq!(create("after").await.status, 200);
}

#[tokio::test]
async fn only_a_restore_that_locked_the_store_is_logged_as_failed() {
    log::keep();
    let folder = tempfile::tempdir().unwrap();
    let options = AclOptions { key_file: Some(folder.path().join("seal.key")), ..options(folder.path()) };
    let store: Arc<dyn Store> = Arc::new(Embedded::open(options.store.folder().unwrap(), "dc1").unwrap());
    // The last read before the marker is written.
    let faults = Arc::new(StoreFaults::with_delayed_read(&store, "seal/key"));
    faults.disarm();
    let server = Served::without_background(faults.clone(), &options, Clock::System).await;
    let root = server.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = root["SecretID"].as_str().unwrap();
    let by_root = [("X-Service-Token", root)];
    let snapshot = server.http.get(format!("{}/v1/snapshot", server.url)).header("X-Service-Token", root);
    let snapshot = snapshot.send().await.unwrap().bytes().await.unwrap();
    let failures = || log::text().matches("\"acl.restore.failed\"").count();

    let damaged = server.send("PUT", "/v1/snapshot", &by_root, &snapshot[..100]).await;
    assert_eq!(damaged.status, 400, "{damaged:?}");
    let by_nobody = server.send("PUT", "/v1/snapshot", &[], &snapshot).await;
    assert_eq!(by_nobody.status, 403, "{by_nobody:?}");
    assert_eq!(failures(), 0);

    faults.arm();
    let (late, ()) = tokio::join!(server.send("PUT", "/v1/snapshot", &by_root, &snapshot), async {
        faults.is_reached().await;
        break_off(&store, &options, root, &snapshot).await;
        faults.release();
    });
    assert_eq!((late.status, late.text.as_str()), (409, "another restore has just started"));
    assert_eq!(failures(), 1, "of the restore that broke off");
}

#[tokio::test]
async fn the_message_of_a_failed_restore_says_how_far_it_came_and_what_to_do() {
    log::keep();
    let faulty = FaultyServer::start(StoreFaults::new).await;
    let FaultyServer { options, store, faults, server, root, .. } = &faulty;
    let (header, mut records) = read(&faulty.snapshot().await);
    records.retain(|(key, _)| key != "token/default/00000000-0000-0000-0000-000000000002");
    let snapshot = written(&header, &records);
    let fail = async |batches: usize, status: u16, text: &str, advice: &str| {
        let failed = faulty.restore(batches, &snapshot).await;
        assert!(failed.status == status && failed.text.contains(text), "{failed:?}, not {status} {text}");
        let lines = log::lines();
        let last = lines.iter().rfind(|line| line["fields"]["event"] == "acl.restore.failed");
        let message = last.unwrap_or_else(|| panic!("{}", log::text()))["fields"]["message"].as_str().unwrap();
        assert!(message.contains(advice), "{message}, not {advice}");
    };

    let seal_key = Key::from("seal/key".to_owned());
    let sealed = store.get(&seal_key, Freshness::Linearizable).await.unwrap().unwrap().value.to_vec();
    let change = async |write: Write| store.commit(Batch { checks: vec![], writes: vec![write] }).await.unwrap();
    change(Write::Delete(seal_key.clone())).await;
    fail(usize::MAX, 500, "internal error", "did not begin: correct the key file or the store").await;
    change(Write::Put(seal_key, sealed)).await;
    // The batches: the marker, the namespaces, the other records, the end.
    for (batches, status, text, advice) in [
        (0, 500, "internal error", "may have locked the store: restore again"),
        (1, 503, "restore again with the same token", "restore again to unlock the store"),
        (4, 500, "the records were restored, but", "restart the server"),
    ] {
        fail(batches, status, text, advice).await;
    }
    assert_eq!(server.call("GET", "/v1/acl/roles", Some(root), None).await.status, 200, "the store is not locked");
    faults.batches.store(usize::MAX, Ordering::SeqCst);
    let again = Served::without_background(faults.clone(), options, Clock::System).await;
    assert_eq!(again.call("GET", "/v1/acl/token/self", Some("anonymous"), None).await.status, 200);
}

#[tokio::test]
async fn a_restore_that_fills_the_disk_says_that_it_must_be_repeated() {
    let faulty = FaultyServer::start(StoreFaults::with_full_disk).await;
    let FaultyServer { server, root, .. } = &faulty;
    let snapshot = faulty.snapshot().await;
    let restore = async |batches: usize| faulty.restore(batches, &snapshot).await;

    let before = restore(0).await;
    assert_eq!((before.status, before.text.as_str()), (507, "the disk of the store is full: nothing was written"));
    let failed = restore(2).await;
    assert_eq!(failed.status, 503, "{failed:?}");
    assert!(failed.text.contains("the store is closed; restore again with the same token"), "{failed:?}");
    assert_eq!(server.call("GET", "/v1/acl/roles", Some(root), None).await.status, 503);
    #[cfg(feature = "dev")]
    {
        let file = faulty.folder.path().join("all.snapshot");
        std::fs::write(&file, &snapshot).unwrap();
        faulty.faults.batches.store(2, Ordering::SeqCst);
        let words = format!("restore {}", file.display());
        let failed = crate::acl::cli_requests::acl(&server.url, root, &words, "").await;
        assert!(failed.error.contains("run the restore again with the same token"), "{failed:?}");
    }
    assert_eq!(restore(usize::MAX).await.status, 200);
    assert_eq!(server.call("GET", "/v1/acl/roles", Some(root), None).await.status, 200);
}

#[tokio::test]
async fn a_restore_wakes_waiters_and_clears_cached_callers() {
    let acl = Acl::start().await;
    let snapshot = acl.snapshot().await;
    let late = acl.token_with("acl = \"read\"").await;
    let start = Instant::now();
    let now = index(&acl.get("/v1/acl/roles").await);
    let path = format!("/v1/acl/roles?index={now}&wait=60s");
    let restore = async {
        acl.until_a_query_waits().await;
        tokio::join!(acl.restore(&acl.root, &snapshot), async {
            // Authenticated from memory until the restore begins.
            wait_until_locked(&acl, &late).await;
            acl.restore(&acl.root, &snapshot).await
        })
    };
    let (by_late, by_root, (restored, second)) =
        tokio::join!(acl.call("GET", &path, Some(&late), None), acl.get(&path), restore);
    assert_eq!(restored.status, 200, "{restored:?}");
    assert_eq!((second.status, second.text.as_str()), (409, "another restore is running on this server"));
    for woken in [by_late, by_root] {
        assert_eq!(woken.status, 503, "{woken:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let refused = acl.call("GET", "/v1/acl/roles", Some(&late), None).await;
    assert_eq!((refused.status, refused.text.as_str()), (403, "ACL not found"));
    assert_eq!(acl.get("/v1/acl/roles").await.text, "[]");
}

#[tokio::test]
async fn a_restore_completes_after_its_client_disconnects() {
    let acl = Acl::start().await;
    let snapshot = acl.snapshot().await;
    acl.make("/v1/acl/role", json!({"Name": "late"})).await;
    tokio::select! {
        ended = acl.restore(&acl.root, &snapshot) => panic!("{ended:?}"),
        () = wait_until_locked(&acl, &acl.root) => {}
    }
    assert_eq!(acl.get("/v1/acl/roles").await.status, 503);
    let start = Instant::now();
    while acl.get("/v1/acl/roles").await.status == 503 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(acl.get("/v1/acl/roles").await.text, "[]");
}
