//! Contract of every store: waiting for changes.
#![expect(
    clippy::disallowed_methods,
    reason = "servers and processes are waited for in real time, and end with the test"
)]

use std::sync::Arc;
use std::time::Duration;

use keyward_acl::store::{Freshness, Key, Page, Revision, Store, Write};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{get, key, put, soon, writes};

pub(super) async fn a_watch_behind_the_store_returns_at_once(store: Arc<dyn Store>) {
    let first = store.commit(put("a", "1")).await.unwrap();
    let other = store.commit(writes([Write::Put(Key::new(&["role", "a"]), Vec::new())])).await.unwrap();
    let second = store.commit(put("a", "2")).await.unwrap();
    let changed = async |prefix, since| soon(store.changed(prefix, since)).await.unwrap();
    for prefix in ["token/", "token/a", "token/never", "token/never/"] {
        assert!(changed(prefix, Revision(0)).await >= second);
        assert!(changed(prefix, first).await >= second);
    }
    assert!(changed("role/", first).await >= other);
    // A store that just (re)started its watch does not know earlier changes, and may wake once without one.
    let mut since = other;
    for _ in 0..2 {
        match timeout(Duration::from_millis(50), store.changed("role/", since)).await {
            Err(_) => return,
            Ok(revision) => since = revision.unwrap(),
        }
    }
    panic!("who is up to date is woken again and again");
}

pub(super) async fn a_watch_wakes_by_its_own_keys_only(store: Arc<dyn Store>) {
    let now = store.commit(put("a", "1")).await.unwrap();
    let waits = |prefix: &'static str| soon(store.changed(prefix, now));
    let sleeps = |prefix: &'static str| timeout(Duration::from_millis(500), store.changed(prefix, now));
    let deep = writes([Write::Put(Key::new(&["token", "b", "x"]), Vec::new())]);
    let other = writes([Write::Put(Key::new(&["role", "a"]), Vec::new())]);
    let (kind, one, below, deepest, another, start, _) = tokio::join!(
        waits("token/"),
        waits("token/b"),
        waits("token/b/"),
        waits("token/b/x"),
        sleeps("token/c"),
        sleeps("token/b/x/"),
        async {
            store.commit(other).await.unwrap();
            store.commit(put("b", "1")).await.unwrap();
            store.commit(deep).await.unwrap()
        }
    );
    for woken in [&kind, &one, &below, &deepest] {
        assert!(matches!(woken, Ok(revision) if *revision > now), "{woken:?}");
    }
    for silent in [&another, &start] {
        assert!(silent.is_err(), "{silent:?}");
    }
    // A deletion is a change.
    let last = store.changed("token/", Revision(0)).await.unwrap();
    let (removal, written) =
        tokio::join!(soon(store.changed("token/b", last)), store.commit(writes([Write::Delete(key("b"))])));
    assert!(removal.unwrap() >= last && written.unwrap() > last);
}

pub(super) async fn repeated_watches_miss_no_change(store: Arc<dyn Store>) {
    const CHANGES: usize = 200;
    let start = store.commit(put("count", "0")).await.unwrap();
    let mut waiters = JoinSet::new();
    for prefix in ["token/", "token/count"] {
        let store = Arc::clone(&store);
        waiters.spawn(async move {
            let (mut since, mut wakes) = (start, 0);
            loop {
                since = soon(store.changed(prefix, since)).await.unwrap();
                wakes += 1;
                if &*get(&*store, "count").await.unwrap().value == CHANGES.to_string().as_bytes() {
                    return wakes;
                }
            }
        });
    }
    for count in 1..=CHANGES {
        store.commit(put("count", &count.to_string())).await.unwrap();
        // Occasional pauses, so that waiters meet writes in every phase.
        for _ in 0..count % 7 {
            tokio::task::yield_now().await;
        }
    }
    for wakes in waiters.join_all().await {
        // On shared stores each change may be reported twice, not more.
        assert!((1..=2 * CHANGES + 1).contains(&wakes), "{wakes} wake-ups");
    }
}

pub(super) async fn a_list_never_claims_a_change_that_it_does_not_show(store: Arc<dyn Store>) {
    const CHANGES: u64 = 60;
    store.commit(put("count", "0")).await.unwrap();
    let reader = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut listings = Vec::new();
            loop {
                for freshness in [Freshness::Linearizable, Freshness::Stale] {
                    let listing = store.list("token/", Page { after: None, limit: 9 }, freshness).await.unwrap();
                    let count: u64 = std::str::from_utf8(&listing.entries[0].1.value).unwrap().parse().unwrap();
                    listings.push((listing.revision, count));
                    if count == CHANGES {
                        return listings;
                    }
                }
            }
        })
    };
    let mut written = Vec::new();
    for count in 1..=CHANGES {
        // The record is deleted and created again, so that the list's revision differs from the record's.
        let other = Write::Put(Key::new(&["role", "a"]), Vec::new());
        store.commit(writes([Write::Put(key("count"), count.to_string().into()), other])).await.unwrap();
        let at = store.commit(writes([Write::Delete(key("x")), Write::Put(key("count"), count.to_string().into())]));
        written.push((at.await.unwrap(), count));
    }
    for (revision, count) in soon(reader).await.unwrap() {
        let claimed = written.iter().rev().find(|(at, _)| *at <= revision);
        assert!(claimed.is_none_or(|(_, claimed)| *claimed <= count), "{revision:?} with {count}");
    }
}

pub(super) async fn a_thousand_waiters_wake_by_one_write(store: Arc<dyn Store>) {
    let now = store.commit(put("a", "1")).await.unwrap();
    let mut waiters = JoinSet::new();
    for number in 0..1000 {
        let store = Arc::clone(&store);
        let prefix = if number % 2 == 0 { "token/" } else { "token/a" };
        waiters.spawn(async move { store.changed(prefix, now).await.unwrap() });
    }
    assert!(waiters.try_join_next().is_none(), "one woke by itself");
    let at = store.commit(put("a", "2")).await.unwrap();
    for woken in soon(waiters.join_all()).await {
        assert_eq!(woken, at);
    }
}

pub(super) async fn a_dropped_watch_is_removed(store: Arc<dyn Store>) {
    let mut now = store.commit(put("a", "1")).await.unwrap();
    for round in 0..50 {
        let _ = timeout(Duration::from_millis(1), store.changed("token/a", now)).await;
        let (woken, written) =
            tokio::join!(soon(store.changed("token/a", now)), store.commit(put("a", &round.to_string())));
        let before = std::mem::replace(&mut now, written.unwrap());
        assert_eq!((woken.unwrap(), before < now), (now, true));
    }
}
