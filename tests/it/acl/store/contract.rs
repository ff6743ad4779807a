//! Contract of every store: batches and reads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use keyward_acl::store::{Batch, Check, CommitError, Freshness, Key, Page, Record, Revision, Store, Write};
use tokio::task::JoinSet;

use super::{conflict, get, key, names, put, revision_of, soon, value, writes};

pub(super) async fn a_record_has_the_revisions_that_made_and_changed_it(store: Arc<dyn Store>) {
    assert_eq!(get(&*store, "a").await, None);
    let first = store.commit(put("a", "1")).await.unwrap();
    let second = store.commit(put("a", "2")).await.unwrap();
    assert!(second > first && first > Revision(0));
    let record = get(&*store, "a").await.unwrap();
    assert_eq!((record.created, record.modified, &*record.value), (first, second, &b"2"[..]));
    let third = store.commit(writes(["b", "c"].map(|name| Write::Put(key(name), Vec::new())))).await.unwrap();
    for name in ["b", "c"] {
        let record = get(&*store, name).await.unwrap();
        assert_eq!((record.created, record.modified), (third, third));
    }
    assert_eq!(get(&*store, "a").await.unwrap().modified, second);
}

pub(super) async fn keys_and_values_are_kept_byte_for_byte(store: Arc<dyn Store>) {
    let all: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let keys = ["é", "a b", "A", "%2F", "\u{1f511}", "a", "..", "~"].map(|last| Key::new(&["odd", "x", last]));
    let of = |value: &[u8]| writes(keys.iter().map(|key| Write::Put(key.clone(), value.to_vec())));
    for bytes in [&all[..], b"", b"\0"] {
        store.commit(of(bytes)).await.unwrap();
        for key in &keys {
            let record = store.get(key, Freshness::Linearizable).await.unwrap().unwrap();
            assert_eq!(&*record.value, bytes, "{key:?}");
        }
    }
    let listing = store.list("odd/", Page { after: None, limit: 99 }, Freshness::Linearizable).await.unwrap();
    let mut sorted = keys.to_vec();
    sorted.sort();
    assert_eq!(listing.entries.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), sorted);
}

pub(super) async fn a_batch_is_written_whole_or_not_at_all(store: Arc<dyn Store>) {
    let first = store.commit(put("a", "1")).await.unwrap();
    let second = store.commit(put("a", "2")).await.unwrap();
    let batch = |checks: Vec<Check>| Batch {
        checks,
        writes: vec![Write::Put(key("b"), b"x".into()), Write::Delete(key("a")), Write::Put(key("c"), b"x".into())],
    };
    for checks in [
        vec![Check::Absent(key("a"))],
        vec![Check::Unchanged(key("a"), first)],
        vec![Check::Unchanged(key("a"), Revision(second.0 + 1))],
        vec![Check::Unchanged(key("a"), Revision(u64::MAX))],
        vec![Check::Unchanged(key("none"), Revision(0))],
        vec![Check::Unchanged(key("none"), second)],
        vec![Check::Unchanged(key("a"), second), Check::Absent(key("b")), Check::Absent(key("a"))],
    ] {
        conflict(store.commit(batch(checks)).await);
        assert_eq!(names(&*store, "token/", None, 9).await, (vec!["a".to_owned()], false));
        assert_eq!((value(&*store, "a").await.as_deref(), revision_of(&*store, "token/").await), (Some("2"), second));
    }
    let checks = vec![Check::Absent(key("b")), Check::Unchanged(key("a"), second), Check::Absent(key("none"))];
    store.commit(batch(checks)).await.unwrap();
    assert_eq!(names(&*store, "token/", None, 9).await, (vec!["b".into(), "c".into()], false));
}

pub(super) async fn a_check_names_the_record_that_it_failed_on(store: Arc<dyn Store>) {
    let at = store.commit(put("a", "1")).await.unwrap();
    let fails = async |checks: Vec<Check>| conflict(store.commit(Batch { checks, ..put("b", "1") }).await);
    let sound = || [Check::Unchanged(key("a"), at), Check::Absent(key("x"))].into_iter();
    assert_eq!(fails(vec![Check::Absent(key("a"))]).await, key("a"));
    assert_eq!(fails(sound().chain([Check::Unchanged(key("y"), at)]).collect()).await, key("y"));
    assert_eq!(fails(sound().chain([Check::Unchanged(key("z"), Revision(0))]).collect()).await, key("z"));
    // The first of several failed checks.
    let several = [Check::Unchanged(key("b"), at), Check::Absent(key("a"))];
    assert_eq!(fails(sound().chain(several).collect()).await, key("b"));
}

pub(super) async fn checks_alone_move_nothing(store: Arc<dyn Store>) {
    let at = store.commit(put("a", "1")).await.unwrap();
    let checks = |checks: Vec<Check>| Batch { checks, writes: Vec::new() };
    assert!(store.commit(checks(vec![Check::Unchanged(key("a"), at)])).await.unwrap() >= at);
    assert!(store.commit(Batch::default()).await.unwrap() >= at);
    assert_eq!(conflict(store.commit(checks(vec![Check::Absent(key("a"))])).await), key("a"));
    assert_eq!(revision_of(&*store, "token/").await, at);
    assert_eq!(get(&*store, "a").await.unwrap().modified, at);
}

pub(super) async fn lists_are_in_the_order_of_the_keys_and_stay_in_their_prefix(store: Arc<dyn Store>) {
    let all = ["list/3", "list/1", "list/2", "listen/1", "lis/1", "list.x/1", "list0/1", "list/2/x", "list/20"];
    store.commit(writes(all.map(|text| Write::Put(Key::from(text.to_owned()), Vec::new())))).await.unwrap();
    let page = async |prefix: &str, after: Option<&str>, limit| {
        let page = Page { after: after.map(|text| Key::from(text.to_owned())), limit };
        let listing = store.list(prefix, page, Freshness::Linearizable).await.unwrap();
        let keys = listing.entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(" ");
        (keys, listing.more)
    };
    let whole = "list/1 list/2 list/2/x list/20 list/3";
    assert_eq!(page("list/", None, 9).await, (whole.into(), false));
    assert_eq!(page("list/", None, 5).await, (whole.into(), false));
    assert_eq!(page("list/", None, usize::MAX).await, (whole.into(), false));
    assert_eq!(page("list/", None, 2).await, ("list/1 list/2".into(), true));
    assert_eq!(page("list/", None, 0).await, (String::new(), true));
    assert_eq!(page("list/", Some("list/2"), 2).await, ("list/2/x list/20".into(), true));
    assert_eq!(page("list/", Some("list/20"), 2).await, ("list/3".into(), false));
    // A deleted or missing key still has a position.
    assert_eq!(page("list/", Some("list/15"), 1).await, ("list/2".into(), true));
    assert_eq!(page("list/", Some("list/3"), 2).await, (String::new(), false));
    assert_eq!(page("list/2/", None, 2).await, ("list/2/x".into(), false));
    assert_eq!(page("none/", None, 2).await, (String::new(), false));
    assert_eq!(page("none/", None, 0).await, (String::new(), false));
}

pub(super) async fn a_long_list_of_large_records_comes_in_pages_and_as_a_whole(store: Arc<dyn Store>) {
    let name = |number: usize| format!("{number:05}");
    for start in (0..2500).step_by(125) {
        let batch = writes((start..start + 125).map(|number| Write::Put(key(&name(number)), vec![7; 8])));
        store.commit(batch).await.unwrap();
    }
    // More than a gRPC message can hold.
    for number in 1000..1005 {
        let value = vec![b'x'; 900 * 1024];
        store.commit(writes([Write::Put(key(&name(number)), value)])).await.unwrap();
    }
    let every: Vec<String> = (0..2500).map(name).collect();
    assert_eq!(names(&*store, "token/", None, usize::MAX).await, (every.clone(), false));
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (page, more) = names(&*store, "token/", after, 999).await;
        assert!(page.len() == 999 || !more);
        after = page.last().map(|last| key(last));
        all.extend(page);
        if !more {
            break;
        }
    }
    assert!(all == every);
}

pub(super) async fn a_deleted_record_can_be_created_again(store: Arc<dyn Store>) {
    store.commit(put("a", "1")).await.unwrap();
    let before = store.commit(put("other", "1")).await.unwrap();
    let deleted = store.commit(writes([Write::Delete(key("a")), Write::Delete(key("never"))])).await.unwrap();
    assert!(deleted > before);
    assert_eq!(get(&*store, "a").await, None);
    assert_eq!(revision_of(&*store, "token/").await, deleted);
    store.commit(writes([Write::Delete(key("a"))])).await.unwrap();
    let again = store.commit(Batch { checks: vec![Check::Absent(key("a"))], ..put("a", "2") }).await.unwrap();
    let record = get(&*store, "a").await.unwrap();
    assert_eq!((record.created, record.modified), (again, again));
}

pub(super) async fn of_two_writes_of_one_key_the_later_wins(store: Arc<dyn Store>) {
    let put = |value: &[u8]| Write::Put(key("a"), value.to_vec());
    let other = || Write::Put(key("b"), Vec::new());
    let first = store.commit(writes([put(b"1"), other(), put(b"2")])).await.unwrap();
    assert_eq!(value(&*store, "a").await.as_deref(), Some("2"));
    // A deletion inside the batch has no effect.
    store.commit(writes([Write::Delete(key("a")), put(b"3")])).await.unwrap();
    let record = get(&*store, "a").await.unwrap();
    assert_eq!((record.created, &*record.value), (first, &b"3"[..]));
    store.commit(writes([put(b"4"), Write::Delete(key("a"))])).await.unwrap();
    assert_eq!(get(&*store, "a").await, None);
    assert!(get(&*store, "b").await.is_some());
}

pub(super) async fn a_batch_at_the_limits_is_accepted_and_one_above_is_not(store: Arc<dyn Store>) {
    let numbered = |number: usize| Key::new(&["limit", &format!("{number:03}")]);
    // 128 checks of 64-byte keys, 128 writes of 9-byte keys, and the remaining bytes in values.
    let checks: Vec<_> =
        (0..128).map(|number| Check::Absent(Key::new(&["limit", &format!("{number:x>58}")]))).collect();
    let left = Batch::MAX_BYTES - 128 * (2 * 64) - 128 * 9;
    let filled = |spare: usize| {
        let write = |number: usize| {
            let length = if number == 0 { left - 127 * (left / 128) + spare } else { left / 128 };
            Write::Put(numbered(number), vec![1; length])
        };
        Batch { checks: checks.clone(), writes: (0..128).map(write).collect() }
    };
    let untouched = revision_of(&*store, "limit/").await;
    let refused = async |batch: Batch| {
        let outcome = store.commit(batch).await;
        assert!(matches!(outcome, Err(CommitError::TooLarge)), "{outcome:?}");
    };
    refused(filled(1)).await;
    refused(Batch { checks: vec![Check::Absent(key("z")); 129], writes: Vec::new() }).await;
    refused(writes((0..129).map(|number| Write::Delete(numbered(number))))).await;
    refused(writes([Write::Put(numbered(0), vec![0; Batch::MAX_BYTES])])).await;
    assert_eq!(names(&*store, "limit/", None, 9).await, (vec![], false));
    assert_eq!(revision_of(&*store, "limit/").await, untouched);
    store.commit(filled(0)).await.unwrap();
    assert_eq!(names(&*store, "limit/", None, usize::MAX).await.0.len(), 128);
    // The same with checks of long keys only, which etcd receives twice.
    let long = |number: usize| Check::Absent(Key::new(&["limit", &format!("{number:x>4090}")]));
    store.commit(Batch { checks: (0..128).map(long).collect(), writes: Vec::new() }).await.unwrap();
    let taken = (0..127).map(long).chain([Check::Absent(numbered(5))]);
    assert_eq!(conflict(store.commit(Batch { checks: taken.collect(), writes: Vec::new() }).await), numbered(5));
}

pub(super) async fn many_writers_count_without_a_gap(store: Arc<dyn Store>) {
    const WRITERS: usize = 8;
    const EACH: usize = 10;
    store.commit(put("count", "0")).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for round in 0..EACH {
                loop {
                    let record = get(&*store, "count").await.unwrap();
                    let count: usize = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
                    let checks = vec![Check::Unchanged(key("count"), record.modified)];
                    let mut batch = Batch { checks, ..put("count", &(count + 1).to_string()) };
                    batch.writes.push(Write::Put(Key::new(&["step", &format!("{writer}-{round}")]), Vec::new()));
                    match store.commit(batch).await {
                        Ok(_) => break,
                        outcome => assert_eq!(conflict(outcome), key("count")),
                    }
                }
            }
        });
    }
    soon(writers.join_all()).await;
    assert_eq!(value(&*store, "count").await, Some((WRITERS * EACH).to_string()));
    assert_eq!(names(&*store, "step/", None, usize::MAX).await.0.len(), WRITERS * EACH);
}

pub(super) async fn of_many_writers_with_the_same_check_one_wins(store: Arc<dyn Store>) {
    let mut writers = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let batch = Batch { checks: vec![Check::Absent(key("one"))], ..put("one", &number.to_string()) };
            store.commit(batch).await.is_ok()
        });
    }
    let won = soon(writers.join_all()).await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}

pub(super) async fn a_batch_is_written_although_its_caller_is_dropped(store: Arc<dyn Store>) {
    let at = store.commit(put("first", "")).await.unwrap();
    for number in 0..20 {
        let mut commit = pin!(store.commit(put(&number.to_string(), "")));
        // Polled once, so that it starts, and then dropped.
        poll_fn(|task| {
            let _ = commit.as_mut().poll(task);
            Poll::Ready(())
        })
        .await;
    }
    soon(async {
        let mut last = at;
        while names(&*store, "token/", None, 99).await.0.len() < 21 {
            last = store.changed("token/", last).await.unwrap();
        }
    })
    .await;
}

pub(super) async fn a_stale_read_catches_up(store: Arc<dyn Store>) {
    let at = store.commit(put("a", "1")).await.unwrap();
    soon(async {
        while store.get(&key("a"), Freshness::Stale).await.unwrap().is_none_or(|record| record.modified < at) {}
    })
    .await;
    let listing = store.list("token/", Page { after: None, limit: 9 }, Freshness::Stale).await.unwrap();
    assert_eq!((listing.entries.len(), listing.more, listing.revision), (1, false, at));
    assert_eq!(store.get(&key("none"), Freshness::Stale).await.unwrap(), None);
}

pub(super) async fn an_export_gives_everything_as_it_was_when_it_began(store: Arc<dyn Store>) {
    let of = |kind: &str, number: usize| Key::new(&[kind, &format!("{number:04}")]);
    let kinds = ["a", "token", "zone"];
    let mut expected = Vec::new();
    for kind in kinds {
        for numbers in (0..250).collect::<Vec<_>>().chunks(100) {
            let put = |number: &usize| Write::Put(of(kind, *number), format!("{kind} {number}").into_bytes());
            store.commit(writes(numbers.iter().map(put))).await.unwrap();
        }
        expected.extend((0..250).map(|number| (of(kind, number), format!("{kind} {number}"))));
    }
    let mut export = store.export().await.unwrap();
    let mut found = export.next(10).await.unwrap();
    assert_eq!(found.len(), 10);
    for kind in kinds {
        let put = Write::Put(of(kind, 100), b"changed".to_vec());
        store
            .commit(writes([put, Write::Delete(of(kind, 200)), Write::Put(of(kind, 9999), Vec::new())]))
            .await
            .unwrap();
    }
    loop {
        let more = export.next(99).await.unwrap();
        assert!(more.len() <= 99);
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    assert!(export.next(99).await.unwrap().is_empty());
    let text = |(key, record): (Key, Record)| (key, String::from_utf8(record.value.into()).unwrap());
    let found: Vec<_> = found.into_iter().map(text).collect();
    assert!(found == expected, "{} records were given of {}", found.len(), expected.len());
    let mut now = store.export().await.unwrap();
    assert_eq!(now.next(usize::MAX).await.unwrap().len(), expected.len());
}
