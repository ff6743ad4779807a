use std::time::SystemTime;

use http::Method;

use super::*;
use crate::agent::api_proxy::cache::entry::EntryKind;

fn at(seconds: u64) -> ClockReading {
    ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
}

fn key(path: &str) -> CacheKey {
    CacheKey::new(TokenScope::Session, &Method::GET, "", path, None, b"")
}

fn plain(bytes: usize) -> CacheEntry {
    let body = format!(r#"{{"data":{{"a":"{}"}}}}"#, "x".repeat(bytes));
    CacheEntry::parse(EntryKind::Plain, body.as_bytes()).unwrap()
}

fn leased(seconds: u64, renewable: bool) -> CacheEntry {
    let body =
        format!(r#"{{"data":{{}},"lease_id":"x/{seconds}","lease_duration":{seconds},"renewable":{renewable}}}"#);
    CacheEntry::parse(EntryKind::Leased, body.as_bytes()).unwrap()
}

#[test]
fn the_least_recently_used_entry_is_evicted() {
    let mut lru = LruCache::new(10_000);
    for name in ["a", "b", "c"] {
        lru.insert(key(name), plain(2000), None, at(0), 0.0);
    }
    assert!(lru.lookup(&key("a"), at(1)).is_some());
    lru.insert(key("d"), plain(3000), None, at(2), 0.0);
    let there: Vec<_> = ["a", "b", "c", "d"].into_iter().filter(|it| lru.lookup(&key(it), at(3)).is_some()).collect();
    assert_eq!(there, ["a", "c", "d"]);
    assert!(lru.bytes() <= 10_000);
    lru.insert(key("e"), plain(20_000), None, at(4), 0.0);
    assert!(lru.lookup(&key("e"), at(4)).is_none() && lru.len() == 3, "larger than the cache");
    assert_eq!(lru.remove_where(|_, _, _| true), 3);
    assert_eq!((lru.bytes(), lru.len()), (0, 0));
}

#[test]
fn a_lease_is_renewed_while_it_grows_and_its_last_renewal_sets_its_end() {
    let mut lru = LruCache::new(10_000);
    lru.insert(key("a"), leased(100, true), None, at(0), 0.0);
    assert_eq!(lru.lookup(&key("a"), at(40)).unwrap().remaining, Some(Duration::from_mins(1)));
    assert_eq!(lru.next_due(), Some(at(63)));
    assert!(lru.take_due(at(62)).is_none());
    let due = lru.take_due(at(63)).unwrap();
    assert!(lru.take_due(at(63)).is_none() && lru.next_due().is_none(), "the renewal is under way");
    lru.record_renewal(&due.key, Some(Lease { ttl: Duration::from_secs(100), renewable: true }), at(64), 0.0);
    assert_eq!(lru.lookup(&key("a"), at(104)).unwrap().remaining, Some(Duration::from_mins(1)));
    assert_eq!(lru.lookup(&key("a"), at(104)).unwrap().age, Duration::from_secs(104));
    // Near the maximum TTL a renewal does not extend it: another lease is requested before it ends.
    let due = lru.take_due(at(127)).unwrap();
    lru.record_renewal(&due.key, Some(Lease { ttl: Duration::from_secs(40), renewable: true }), at(127), 0.0);
    assert!(lru.take_due(at(150)).is_none() && lru.lookup(&key("a"), at(150)).is_some());
    assert!(lru.take_due(at(153)).is_none() && lru.lookup(&key("a"), at(153)).is_none());
}

#[test]
fn a_lease_that_cannot_be_renewed_is_served_until_another_is_due() {
    let mut lru = LruCache::new(10_000);
    lru.insert(key("a"), leased(100, false), None, at(0), 0.0);
    assert!(lru.take_due(at(62)).is_none() && lru.lookup(&key("a"), at(62)).is_some());
    assert!(lru.take_due(at(63)).is_none() && lru.lookup(&key("a"), at(63)).is_none());
    let mut lru = LruCache::new(10_000);
    lru.insert(key("a"), leased(100, true), None, at(0), 0.0);
    let due = lru.take_due(at(70)).unwrap();
    lru.retry_renewal(&due.key, at(90));
    assert!(lru.take_due(at(89)).is_none() && lru.take_due(at(90)).is_some());
    lru.retry_renewal(&due.key, at(190));
    assert!(lru.lookup(&key("a"), at(99)).is_some() && lru.lookup(&key("a"), at(100)).is_none());
}
