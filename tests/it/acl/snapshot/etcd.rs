//! Snapshots of several servers on one etcd cluster.

use std::path::PathBuf;
use std::time::Duration;

use keyward_acl::store::StoreOptions;
use keyward_acl::store::etcd::EtcdOptions;
use serde_json::json;

use super::{Acl, can_decrypt, make_some_of_each, read, visible_state, with_key_in};
use crate::acl::store::etcd_process::shared;

async fn on_etcd(options: EtcdOptions, key_file: PathBuf) -> Acl {
    let change = |service: &mut keyward_acl::AclOptions| {
        service.store = StoreOptions::Etcd(options);
        service.key_file = Some(key_file);
    };
    Acl::start_with(change).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_moves_from_the_embedded_store_to_etcd_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_key_in(folder.path()).await;
    let secrets = make_some_of_each(&file).await;
    let before = visible_state(&file, &file.root).await;
    let snapshot = file.snapshot().await;

    let server = shared();
    let mut one = on_etcd(server.options(), folder.path().join("seal.key")).await;
    let other = one.start_second().await;
    let first = std::mem::replace(&mut one.root, file.root.clone());
    assert!(can_decrypt(&other, &first).await);
    // Both servers detect the restore from the store.
    let seen_shut = async {
        while other.call("GET", "/v1/acl/roles", Some(&first), None).await.status != 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let write = other.call("PUT", "/v1/acl/role", Some(&first), Some(json!({"Name": "late"}))).await;
        (write.status, one.call("GET", "/v1/acl/roles", Some(&first), None).await.status)
    };
    let seen_shut = tokio::time::timeout(Duration::from_secs(20), seen_shut);
    let (restored, while_locked) = tokio::join!(one.restore(&first, &snapshot), seen_shut);
    assert_eq!((restored.status, while_locked), (200, Ok((503, 503))), "{restored:?}");
    for server in [&one, &other] {
        assert_eq!(visible_state(server, &file.root).await, before);
        assert!(can_decrypt(server, &secrets[3]).await && !can_decrypt(server, &first).await);
    }
    let back = one.snapshot().await;
    assert!(read(&back).1 == read(&snapshot).1);

    one.make("/v1/acl/role", json!({"Name": "of-etcd"})).await;
    let changed = one.snapshot().await;
    assert_eq!(file.restore(&file.root, &changed).await.status, 200);
    assert_eq!(visible_state(&file, &file.root).await, visible_state(&other, &file.root).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_concurrent_restores_the_later_wins_and_the_earlier_fails() {
    let folder = tempfile::tempdir().unwrap();
    let server = shared();
    let one = on_etcd(server.options(), folder.path().join("seal.key")).await;
    let other = one.start_second().await;
    let empty = one.snapshot().await;
    make_some_of_each(&one).await;
    let (before, full) = (visible_state(&one, &one.root).await, one.snapshot().await);
    let mut rounds = 0..20;
    let later = loop {
        rounds.next().expect("in one of 20 rounds the later restore begins before the earlier ends");
        let later = async {
            while other.get("/v1/acl/roles").await.status != 503 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other.restore(&other.root, &full).await
        };
        let (earlier, later) = tokio::join!(one.restore(&one.root, &empty), later);
        if earlier.status != 200 {
            assert_eq!((earlier.status, earlier.text.as_str()), (409, "another restore took over from this one"));
            break later;
        }
    };
    assert_eq!(later.status, 200, "{later:?}");
    for server in [&one, &other] {
        assert_eq!(visible_state(server, &server.root).await, before);
    }
    assert!(read(&one.snapshot().await).1 == read(&full).1);
}
