//! The record cache is never older than acknowledged or observed writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use keyward_acl::store::{Batch, Embedded, Freshness, Key, Page, Revision, Store as _, Write};

use super::drive::{Drive, Rng};
use super::{open, put, value};

const KEYS: usize = 8;
const ROUNDS: u64 = 300;

fn key(number: usize) -> Key {
    Key::new(&["token", &number.to_string()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_never_go_back_behind_acknowledged_or_seen_writes() {
    let store = Arc::new(open(&Drive::default()));
    for number in 0..KEYS {
        store.commit(put(&key(number), "0")).await.unwrap();
    }
    let newest: Arc<[AtomicU64; KEYS]> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..3 {
        let (store, newest, done) = (Arc::clone(&store), Arc::clone(&newest), Arc::clone(&done));
        readers.spawn(async move {
            let mut reads = 0_u64;
            let mut rng = Rng(reader);
            while !done.load(Ordering::Acquire) {
                read_and_check(&store, &newest, &mut rng).await;
                reads += 1;
                tokio::task::yield_now().await;
            }
            reads
        });
    }
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..KEYS {
        let (store, newest) = (Arc::clone(&store), Arc::clone(&newest));
        writers.spawn(async move {
            for round in 1..=ROUNDS {
                store.commit(put(&key(number), &round.to_string())).await.unwrap();
                newest[number].fetch_max(round, Ordering::AcqRel);
            }
        });
    }
    writers.join_all().await;
    done.store(true, Ordering::Release);
    let reads: u64 = readers.join_all().await.into_iter().sum();
    assert!(reads > ROUNDS, "{reads} reads are no test");
}

/// Reads one key, alone or in a list, and records the lower bound for later reads.
async fn read_and_check(store: &Embedded, newest: &[AtomicU64; KEYS], rng: &mut Rng) {
    let number = rng.below(KEYS);
    let before = newest[number].load(Ordering::Acquire);
    let found = if rng.below(4) == 0 {
        let page = Page { after: None, limit: KEYS };
        let listing = store.list("token/", page, Freshness::Linearizable).await.unwrap();
        String::from_utf8(listing.entries[number].1.value.to_vec()).unwrap()
    } else {
        value(store, &key(number)).await.unwrap()
    };
    let found: u64 = found.parse().unwrap();
    assert!(found >= before, "key {number}: {before} was acknowledged or seen, and then {found} read");
    newest[number].fetch_max(found, Ordering::AcqRel);
}

#[tokio::test]
async fn a_record_is_read_from_disk_once() {
    let drive = Drive::default();
    let store = open(&drive);
    store.commit(put(&key(1), "1")).await.unwrap();
    let made = value(&store, &key(1)).await;
    drop(store);
    let store = open(&drive);
    assert_eq!(value(&store, &key(1)).await, made);
    drive.set(|state| state.failing_reads = usize::MAX);
    let before = drive.get(|state| state.reads);
    assert_eq!(value(&store, &key(1)).await, made);
    assert_eq!(store.changed("token/", Revision(0)).await.unwrap(), Revision(1));
    assert_eq!(drive.get(|state| state.reads), before);
}

#[tokio::test]
async fn a_woken_waiter_reads_the_change() {
    let store = Arc::new(open(&Drive::default()));
    let mut last = store.commit(put(&key(0), "0")).await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = Arc::clone(&store);
        waiters.spawn(async move {
            let (mut newest, mut since) = (0, last);
            while newest < 50 {
                since = store.changed("token/0", since).await.unwrap();
                let found: u64 = value(&store, &key(0)).await.unwrap().parse().unwrap();
                assert!(found + 1 >= since.0, "woken at {since:?} and read {found}");
                newest = found;
            }
        });
    }
    for number in 1..=50 {
        let record = Write::Put(key(0), number.to_string().into_bytes());
        last = store.commit(Batch { checks: Vec::new(), writes: vec![record] }).await.unwrap();
        assert_eq!(last, Revision(number + 1));
    }
    waiters.join_all().await;
}
