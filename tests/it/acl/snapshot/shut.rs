//! An incomplete restore locks the service for everyone else.
#![expect(clippy::disallowed_methods, reason = "a restore is waited for in real time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyward::acl::model::authorize::DefaultPolicy;
use keyward::acl::model::secret::PlainSecret;
use keyward::acl::model::timestamp::Timestamp;
use keyward::acl::service::acl_service::AclService;
use keyward::acl::service::error::ServiceError;
use keyward::acl::service::keys;
use keyward::acl::service::namespaces::NamespaceDraft;
use keyward::acl::service::restore_lock::RestoreMarker;
use keyward::acl::service::seal::Sealer;
use keyward::acl::store::{Batch, Embedded, Freshness, Store, Write};
use keyward::clock::Clock;
use serde_json::json;

use super::{Acl, index, make_some_of_each, opens, visible_state};

/// State that a killed restore leaves: its marker, and a part of the records.
async fn break_off(store: &dyn Store, key_file: &std::path::Path, secret: &str) {
    let sealer = Sealer::open(key_file, store).await.unwrap();
    let by = Some(sealer.keys().current().hash(&PlainSecret::from_presented(secret)));
    let mark = RestoreMarker { by, accessor: None, began: Timestamp::from_system_time(std::time::SystemTime::now()) };
    let mut writes = vec![
        Write::Put(keys::restore_marker(), serde_json::to_vec(&mark).unwrap()),
        Write::Put(keys::restore_last(), b"null".to_vec()),
    ];
    let all = store.export().await.unwrap().next(1000).await.unwrap();
    let half = all.into_iter().map(|(key, _)| key).filter(|key| {
        let kind = key.as_str();
        kind.starts_with("namespace/") || kind.starts_with("token") || kind.starts_with("policy-name/")
    });
    writes.extend(half.map(Write::Delete));
    store.commit(Batch { checks: vec![], writes }).await.unwrap();
}

/// Waits until the service is locked.
async fn shut(acl: &Acl, token: &str) {
    let start = Instant::now();
    while acl.call("GET", "/v1/acl/roles", Some(token), None).await.status != 503 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const REQUESTS: [(&str, &str); 18] = [
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
    let key = acl.options.store.folder().unwrap().join("seal.key");
    let root = acl.root.clone();
    let mut acl = acl.restarted_with(async |store| break_off(&*store, &key, &root).await).await;
    for _ in 0..2 {
        for (method, path) in REQUESTS {
            let answer = acl.call(method, path, Some(&acl.root), None).await;
            assert_eq!(answer.status, 503, "{method} {path}: {answer:?}");
            assert!(answer.headers.contains_key("retry-after"), "{method} {path}: {answer:?}");
            assert!(answer.text.contains("a snapshot restore is in progress"), "{method} {path}: {answer:?}");
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
    assert!(opens(&acl, &other).await);
    assert_eq!(acl.call("GET", "/v1/sys/health", None, None).await.status, 200);
    acl.make("/v1/acl/role", json!({"Name": "goes-on"})).await;
}

#[tokio::test]
async fn requests_admitted_before_the_marker_cannot_write_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let key = folder.path().join("seal.key");
    let sealer = Sealer::open(&key, &*store).await.unwrap();
    let service = AclService::new(Arc::clone(&store), sealer, "dc1".to_owned(), DefaultPolicy::Deny, Clock::System);
    service.create_builtins().await.unwrap();
    let secret = PlainSecret::random();
    service.bootstrap(&secret, None).await.unwrap();
    let caller = service.authenticator().authenticate(Some(&secret), Freshness::Linearizable).await.unwrap();
    let epoch = service.epoch(Freshness::Linearizable).await.unwrap();
    service.namespaces().create(&caller, "before", &NamespaceDraft::default()).await.unwrap();
    assert!(service.epoch(Freshness::Linearizable).await.unwrap().is(epoch));

    break_off(&*store, &key, secret.reveal()).await;
    let written = service.namespaces().create(&caller, "after", &NamespaceDraft::default()).await;
    assert!(matches!(written, Err(ServiceError::Restoring)), "{written:?}");
    for refused in [service.token_sweeper().sweep().await.map(drop), service.create_builtins().await] {
        assert!(matches!(refused, Err(ServiceError::Restoring)), "{refused:?}");
    }
    store.commit(Batch { checks: vec![], writes: vec![Write::Delete(keys::restore_marker())] }).await.unwrap();
    assert!(!service.epoch(Freshness::Linearizable).await.unwrap().is(epoch), "another epoch");
    service.namespaces().create(&caller, "after", &NamespaceDraft::default()).await.unwrap();
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
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::join!(acl.restore(&acl.root, &snapshot), async {
            // Authenticated from memory until the restore begins.
            shut(&acl, &late).await;
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
        () = shut(&acl, &acl.root) => {}
    }
    assert_eq!(acl.get("/v1/acl/roles").await.status, 503);
    let start = Instant::now();
    while acl.get("/v1/acl/roles").await.status == 503 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(acl.get("/v1/acl/roles").await.text, "[]");
}
