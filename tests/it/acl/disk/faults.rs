//! Disk failures: commits fail, reads continue, and writes resume once the disk works.

use std::sync::Arc;
use std::time::Duration;

use keyward_acl::store::{CommitError, Embedded, Key, Revision, Store as _};
use keyward_machine::clock::Clock;
use serde_json::json;

use super::drive::{Drive, Rng, State};
use super::{all, open, put, value};
use crate::harness::served::Served;

fn key(number: usize) -> Key {
    Key::new(&["token", &format!("{number:04}")])
}

fn text(number: usize) -> String {
    format!("{number} {}", "x".repeat(500))
}

/// Opens a store with records and an empty cache.
async fn filled(drive: &Drive, count: usize) -> Embedded {
    let store = open(drive);
    for number in 0..count {
        store.commit(put(&key(number), &text(number))).await.unwrap();
    }
    drop(store);
    open(drive)
}

async fn has_all(store: &Embedded, count: usize) {
    for number in 0..count {
        assert_eq!(value(store, &key(number)).await, Some(text(number)));
    }
    assert_eq!(all(store, "token/").await.len(), count);
}

/// Breaks the drive, checks that commits fail and reads succeed, repairs it, and checks that everything works.
async fn breaks_and_recovers(breaks: impl FnOnce(&mut State), mends: impl FnOnce(&mut State)) {
    let (drive, mut count) = (Drive::default(), 100);
    let store = filled(&drive, count).await;
    drive.set(breaks);
    let error = loop {
        match store.commit(put(&key(count), &text(count))).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CommitError::Unknown(_) | CommitError::Store(_)), "{error:?}");
    // The outcome of this write may be unknown, so it is repeated below.
    let in_doubt = count;
    for number in 0..count {
        assert_eq!(value(&store, &key(number)).await, Some(text(number)));
    }
    let found = all(&store, "token/").await.len();
    assert!(found == count || found == in_doubt + 1, "{found} records of {count}");
    assert!(store.commit(put(&key(in_doubt), &text(in_doubt))).await.is_err());
    assert!(store.changed("token/", Revision(0)).await.is_ok());

    drive.set(mends);
    recovers(&store, in_doubt).await;
    count += 1;
    has_all(&store, count).await;
    drop(store);
    has_all(&open(&drive), count).await;
}

#[tokio::test]
async fn a_full_disk_rejects_writes_until_space_is_freed() {
    breaks_and_recovers(|state| state.full = true, |state| state.full = false).await;
}

#[tokio::test]
async fn a_full_disk_returns_507_if_nothing_was_written() {
    let drive = Drive::default();
    let folder = tempfile::tempdir().unwrap();
    let options = crate::harness::acl::options(folder.path());
    std::fs::create_dir(folder.path().join("acl")).unwrap();
    let served = Served::serve_store(Arc::new(open(&drive)), &options, Clock::System).await;
    let first = served.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = first["SecretID"].as_str().unwrap().to_owned();
    let make = async |number: usize| {
        let body = json!({"Name": format!("r-{number}"), "Description": "x".repeat(4000)});
        served.call("PUT", "/v1/acl/role", Some(&root), Some(body)).await
    };
    drive.set(|state| state.full = true);
    let mut made = 0;
    let refused = loop {
        let response = make(made).await;
        if response.status != 200 {
            break response;
        }
        made += 1;
    };
    let nothing = "the disk of the store is full: nothing was written";
    match refused.status {
        507 => assert_eq!(refused.text, nothing),
        _ => assert_eq!((refused.status, refused.text.contains("may have been written")), (500, true), "{refused:?}"),
    }
    let listed = async || served.call("GET", "/v1/acl/roles", Some(&root), None).await.json().as_array().unwrap().len();
    let there = listed().await;
    assert!(there == made || (refused.status == 500 && there == made + 1), "{there} of {made}");
    // The next sync fails.
    let again = make(made + 1).await;
    assert_eq!((again.status, again.text.as_str()), (507, nothing), "{again:?}");
    assert_eq!(listed().await, there);
    drive.set(|state| state.full = false);
    let start = tokio::time::Instant::now();
    while make(made + 1).await.status != 200 {
        assert!(start.elapsed() < Duration::from_mins(1), "the store does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    served.stop().await;
}

#[tokio::test]
async fn a_read_only_disk_serves_reads_and_later_writes_again() {
    breaks_and_recovers(|state| state.read_only = true, |state| state.read_only = false).await;
}

#[tokio::test]
async fn a_failed_sync_is_repeated_before_the_next_write_succeeds() {
    tokio::join!(outlives_failing_syncs(1), outlives_failing_syncs(2));
}

async fn outlives_failing_syncs(failing: usize) {
    let drive = Drive::default();
    let store = filled(&drive, 20).await;
    drive.set(|state| state.failing_syncs = failing);
    let error = store.commit(put(&key(20), &text(20))).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    has_all_of(&store, 20).await;
    recovers(&store, 21).await;
    drive.set(|state| state.power = Some(0));
    drop(store);
    let store = open(&drive.after_power_loss(&mut Rng(failing as u64)));
    has_all_of(&store, 20).await;
    assert_eq!(value(&store, &key(21)).await, Some(text(21)));
}

/// Retries a write until it succeeds.
async fn recovers(store: &Embedded, number: usize) {
    let start = tokio::time::Instant::now();
    while store.commit(put(&key(number), &text(number))).await.is_err() {
        assert!(start.elapsed() < Duration::from_mins(1), "the store does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn has_all_of(store: &Embedded, count: usize) {
    for number in 0..count {
        assert_eq!(value(store, &key(number)).await, Some(text(number)));
    }
}

#[tokio::test]
async fn a_failed_read_is_retried() {
    let drive = Drive::default();
    let store = filled(&drive, 100).await;
    drive.set(|state| state.failing_reads = 1);
    let before = drive.get(|state| state.reads);
    has_all(&store, 100).await;
    assert!(drive.get(|state| (state.failing_reads, state.reads > before)) == (0, true), "nothing was read");
    recovers(&store, 100).await;
    has_all(&store, 101).await;
}
