//! Concurrent batches share one sync.

use std::sync::Arc;
use std::time::Duration;

use keyward_acl::store::{Batch, Check, CommitError, Key, Store as _};
use tokio::task::JoinSet;

use super::drive::Drive;
use super::{open, put, value};

#[tokio::test]
async fn batches_that_arrive_during_a_sync_share_the_next_one() {
    let drive = Drive::default();
    let store = Arc::new(open(&drive));
    let key = |number: usize| Key::new(&["token", &number.to_string()]);
    store.commit(put(&key(0), "before")).await.unwrap();

    let before = drive.get(|state| state.syncs);
    drive.set(|state| state.gate_closed = true);
    let mut commits = JoinSet::new();
    let mut commit = |batch: Batch| {
        let store = Arc::clone(&store);
        commits.spawn(async move { store.commit(batch).await.map(drop) });
    };
    commit(put(&key(1), "first"));
    while drive.get(|state| state.syncs) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for number in 2..200 {
        commit(put(&key(number), "waited"));
    }
    commit(Batch { checks: vec![Check::Absent(key(0))], ..put(&key(0), "never") });
    for _ in 0..400 {
        tokio::task::yield_now().await;
    }
    // Unsynced writes are not visible.
    assert_eq!(value(&store, &key(1)).await, None);
    drive.set(|state| state.gate_closed = false);

    let outcomes = commits.join_all().await;
    let conflicts = outcomes.iter().filter(|outcome| matches!(outcome, Err(CommitError::Conflict(_)))).count();
    assert_eq!((outcomes.len(), conflicts), (200, 1));
    assert!(outcomes.iter().flatten().count() == 199, "one batch's conflict is no one else's");
    assert_eq!(drive.get(|state| state.syncs) - before, 2, "one sync for the first, one for all others");
    assert_eq!(value(&store, &key(199)).await.as_deref(), Some("waited"));
    assert_eq!(value(&store, &key(0)).await.as_deref(), Some("before"));
}

#[tokio::test]
async fn a_batch_without_writes_does_not_sync() {
    let drive = Drive::default();
    let store = open(&drive);
    let key = Key::new(&["token", "a"]);
    let made = store.commit(put(&key, "1")).await.unwrap();
    let before = drive.get(|state| state.syncs);
    let checks = vec![Check::Unchanged(key.clone(), made)];
    assert_eq!(store.commit(Batch { checks, writes: Vec::new() }).await.unwrap(), made);
    let checks = vec![Check::Absent(key)];
    let conflict = store.commit(Batch { checks, writes: Vec::new() }).await;
    assert!(matches!(conflict, Err(CommitError::Conflict(_))));
    assert_eq!(drive.get(|state| state.syncs), before);
}
