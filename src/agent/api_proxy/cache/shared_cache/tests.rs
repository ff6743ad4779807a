use http::Method;

use super::*;
use crate::api_proxy::cache::entry::EntryKind;
use crate::api_proxy::cache::singleflight::Leader;

fn cache() -> Cache {
    let limits = CacheLimits { bytes: 1 << 20, max_age: Duration::from_hours(1), stale_if_error: Duration::ZERO };
    Cache::new(limits, Clock::System, None)
}

fn key(path: &str) -> CacheKey {
    CacheKey::new(TokenScope::Session, &Method::GET, "", path, None, b"")
}

fn insert_unless(cache: &Cache, path: &str, is_outdated: impl FnOnce() -> bool) {
    let entry = CacheEntry::parse(EntryKind::Plain, br#"{"data":{"a":"b"}}"#).unwrap();
    cache.insert_unless(key(path), entry, cache.now(), None, is_outdated);
}

fn lead(cache: &Cache, path: &str) -> Leader<Arc<BufferedResponse>> {
    match cache.join(&key(path)) {
        JoinOutcome::Leader(leader) => leader,
        JoinOutcome::Follower(_) => panic!("an equal request is under way"),
    }
}

#[test]
fn an_invalidation_between_check_and_insertion_is_not_lost() {
    let cache = cache();
    let leader = lead(&cache, "secret/a");
    insert_unless(&cache, "secret/a", || {
        assert!(cache.0.entries.try_lock().is_none(), "an invalidation waits until the entry is inserted");
        leader.is_outdated()
    });
    assert!(cache.lookup(&key("secret/a")).is_some());
    assert_eq!(cache.invalidate(&Invalidate::Path("", "secret/a")), 1);
    insert_unless(&cache, "secret/a", || leader.is_outdated());
    assert!(cache.lookup(&key("secret/a")).is_none());
}

#[test]
fn an_invalidation_reaches_the_caches_of_listeners_that_took_over() {
    let replaced = cache();
    let next = cache();
    let last = cache();
    replaced.set_successor(&next);
    next.set_successor(&last);
    for path in ["secret/a", "secret/b"] {
        insert_unless(&next, path, || false);
        insert_unless(&last, path, || false);
    }
    let leader = lead(&last, "secret/a");
    replaced.invalidate(&Invalidate::Path("", "secret/a"));
    assert!(leader.is_outdated());
    for cache in [next, last] {
        assert!(cache.lookup(&key("secret/a")).is_none());
        assert!(cache.lookup(&key("secret/b")).is_some());
    }
}
