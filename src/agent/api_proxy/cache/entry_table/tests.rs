use std::time::SystemTime;

use http::Method;

use super::*;
use crate::api_proxy::cache::entry::EntryKind;

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
    let mut entries = EntryTable::new(10_000);
    for name in ["a", "b", "c"] {
        entries.insert(key(name), plain(2000), None, at(0), 0.0);
    }
    assert!(entries.lookup(&key("a"), at(1)).is_some());
    entries.insert(key("d"), plain(3000), None, at(2), 0.0);
    let cached: Vec<_> =
        ["a", "b", "c", "d"].into_iter().filter(|name| entries.lookup(&key(name), at(3)).is_some()).collect();
    assert_eq!(cached, ["a", "c", "d"]);
    assert!(entries.bytes() <= 10_000);
    entries.insert(key("e"), plain(20_000), None, at(4), 0.0);
    assert!(entries.lookup(&key("e"), at(4)).is_none() && entries.slots.len() == 3, "larger than the cache");
    assert_eq!(entries.remove_below("", "c"), 1);
    assert_eq!(entries.remove_below("", ""), 2, "evicted entries are not found by their path any more");
    assert_eq!((entries.bytes(), entries.slots.len()), (0, 0));
}

#[test]
fn an_invalidation_by_path_looks_at_no_other_entry() {
    // A scan of all entries for each insertion would take minutes.
    const ENTRIES: u64 = 20_000;
    let mut entries = EntryTable::new(usize::MAX);
    for at_path in 0..ENTRIES {
        entries.insert(key(&format!("a/{at_path}/b")), leased(100 + at_path, true), None, at(0), 0.0);
    }
    for at_path in (0..ENTRIES).rev() {
        assert_eq!(entries.remove_below("", &format!("a/{at_path}/")), 1);
    }
    assert_eq!((entries.bytes(), entries.slots.len(), entries.next_due()), (0, 0, None));
    assert_eq!(entries.remove_below("", ""), 0);
}

#[test]
fn a_lease_is_renewed_while_it_grows_and_its_last_renewal_sets_its_end() {
    let mut entries = EntryTable::new(10_000);
    entries.insert(key("a"), leased(100, true), None, at(0), 0.0);
    assert_eq!(entries.lookup(&key("a"), at(40)).unwrap().remaining, Some(Duration::from_mins(1)));
    assert_eq!(entries.next_due(), Some(at(63)));
    assert!(entries.take_due(at(62)).is_none());
    let due = entries.take_due(at(63)).unwrap();
    assert!(entries.take_due(at(63)).is_none() && entries.next_due().is_none(), "the renewal is under way");
    entries.record_renewal(&due, Lease { ttl: Duration::from_secs(100), renewable: true }, at(64), 0.0);
    assert_eq!(entries.lookup(&key("a"), at(104)).unwrap().remaining, Some(Duration::from_mins(1)));
    assert_eq!(entries.lookup(&key("a"), at(104)).unwrap().age, Duration::from_secs(104));
    // Near the maximum TTL a renewal does not extend it: another lease is requested before it ends.
    let due = entries.take_due(at(127)).unwrap();
    entries.record_renewal(&due, Lease { ttl: Duration::from_secs(40), renewable: true }, at(127), 0.0);
    assert!(entries.take_due(at(150)).is_none() && entries.lookup(&key("a"), at(150)).is_some());
    assert!(entries.take_due(at(153)).is_none() && entries.lookup(&key("a"), at(153)).is_none());
}

#[test]
fn a_lease_in_its_last_second_is_not_served_as_one_of_no_seconds() {
    let mut entries = EntryTable::new(10_000);
    entries.insert(key("a"), leased(100, true), None, at(0), 0.0);
    let due = entries.take_due(at(70)).unwrap();
    entries.retry_renewal(&due, at(200));
    let half = Duration::from_millis(500);
    let before = |seconds: u64| at(seconds - 1) + half;
    let hit = entries.lookup(&key("a"), before(99)).unwrap();
    assert!(String::from_utf8_lossy(&hit.body()).contains(r#""lease_duration":1,"#));
    assert!(entries.lookup(&key("a"), before(100)).is_none());
}

#[test]
fn a_lease_that_cannot_be_renewed_is_served_until_another_is_due() {
    let mut entries = EntryTable::new(10_000);
    entries.insert(key("a"), leased(100, false), None, at(0), 0.0);
    assert!(entries.take_due(at(62)).is_none() && entries.lookup(&key("a"), at(62)).is_some());
    assert!(entries.take_due(at(63)).is_none() && entries.lookup(&key("a"), at(63)).is_none());
    let mut entries = EntryTable::new(10_000);
    entries.insert(key("a"), leased(100, true), None, at(0), 0.0);
    let due = entries.take_due(at(70)).unwrap();
    entries.retry_renewal(&due, at(90));
    assert!(entries.take_due(at(89)).is_none() && entries.take_due(at(90)).is_some());
    entries.retry_renewal(&due, at(190));
    assert!(entries.lookup(&key("a"), at(99)).is_some() && entries.lookup(&key("a"), at(100)).is_none());
}

#[test]
fn the_result_of_a_renewal_concerns_no_entry_that_took_the_place_of_the_renewed_one() {
    let renewed = Lease { ttl: Duration::from_secs(1000), renewable: true };
    let check = |result: &dyn Fn(&mut EntryTable, &LeaseRenewal)| {
        let mut entries = EntryTable::new(10_000);
        entries.insert(key("a"), leased(100, true), None, at(0), 0.0);
        let due = entries.take_due(at(63)).unwrap();
        entries.insert(key("a"), leased(200, true), None, at(64), 0.0);
        result(&mut entries, &due);
        assert_eq!(entries.lookup(&key("a"), at(65)).unwrap().remaining, Some(Duration::from_secs(199)));
        assert_eq!(entries.next_due(), Some(at(190)));
    };
    check(&|entries, due| entries.record_renewal(due, renewed, at(65), 0.0));
    check(&|entries, due| entries.refuse_renewal(due, 0.0));
    check(&|entries, due| entries.retry_renewal(due, at(70)));
    check(&|entries, due| entries.remove_renewed(due));
}

#[test]
fn a_restored_lease_is_removed_if_its_first_renewal_is_refused() {
    let restored = || {
        let lease = Lease { ttl: Duration::from_secs(100), renewable: true };
        let lease = SavedLease::new(&ActiveLease::issued(lease, at(0), 0.0), at(0)).restore(at(0));
        RestoredEntry { key: key("a"), entry: leased(100, true), age: Duration::ZERO, lease, with_session: true }
    };
    let mut entries = EntryTable::new(10_000);
    entries.restore(vec![restored()], at(0));
    assert!(entries.lookup(&key("a"), at(0)).is_none() && entries.next_due().is_none(), "it is withheld");
    assert_eq!(entries.resolve_pending(Some(Generation::new())), 0);
    assert!(entries.lookup(&key("a"), at(0)).is_some());
    let due = entries.take_due(at(0)).unwrap();
    entries.retry_renewal(&due, at(1));
    let due = entries.take_due(at(1)).unwrap();
    entries.refuse_renewal(&due, 0.0);
    assert!(entries.lookup(&key("a"), at(2)).is_none() && entries.bytes() == 0);
    entries.restore(vec![restored()], at(0));
    entries.resolve_pending(Some(Generation::new()));
    let due = entries.take_due(at(0)).unwrap();
    entries.record_renewal(&due, Lease { ttl: Duration::from_secs(100), renewable: true }, at(1), 0.0);
    let due = entries.take_due(at(64)).unwrap();
    entries.refuse_renewal(&due, 0.0);
    assert!(entries.lookup(&key("a"), at(64)).is_some(), "a server has confirmed it");
    entries.restore(vec![restored()], at(0));
    assert_eq!((entries.resolve_pending(None), entries.next_due()), (1, None), "its token is dead");
}

#[test]
fn a_plain_value_that_is_read_again_unchanged_is_no_new_content() {
    let mut entries = EntryTable::new(10_000);
    let mut insert = |entry: CacheEntry, level: ChangeLevel| {
        entries.insert(key("a"), entry, None, at(0), 0.0);
        assert_eq!(entries.changes(), level);
        entries.entries_to_save(10_000, at(0));
    };
    insert(plain(10), ChangeLevel::Content);
    insert(plain(10), ChangeLevel::AgeOnly);
    insert(plain(11), ChangeLevel::Content);
    insert(leased(100, true), ChangeLevel::Content);
    insert(leased(100, true), ChangeLevel::Content);
}

fn callers_key(path: &str) -> CacheKey {
    CacheKey::new(TokenScope::from_token(b"mine"), &Method::GET, "", path, None, b"")
}

fn token(text: &str, seconds: u64, renewable: bool) -> CacheEntry {
    let auth = format!(r#"{{"client_token":"{text}","lease_duration":{seconds},"renewable":{renewable}}}"#);
    CacheEntry::parse(EntryKind::Leased, format!(r#"{{"auth":{auth}}}"#).as_bytes()).unwrap()
}

#[test]
fn leases_of_a_callers_token_end_with_the_entry_that_issued_it() {
    let ends: [fn(&mut EntryTable); 5] = [
        |entries| entries.remove(&key("login")),
        |entries| {
            entries.insert(key("login"), token("other", 100, true), None, at(1), 0.0);
        },
        |entries| assert_eq!(entries.remove_where(|_, lease_ref, _| matches!(lease_ref, Some(LeaseRef::Token(..)))), 1),
        |entries| {
            let due = entries.take_due(at(63)).unwrap();
            entries.remove_renewed(&due);
        },
        |entries| {
            let due = entries.take_due(at(63)).unwrap();
            entries.refuse_renewal(&due, 0.0);
            assert!(entries.take_due(at(64)).is_none());
        },
    ];
    for (case, end) in ends.into_iter().enumerate() {
        let mut entries = EntryTable::new(10_000);
        assert!(!entries.insert(callers_key("lease"), leased(1000, true), None, at(0), 0.0), "its token is unknown");
        assert!(entries.insert(key("login"), token("mine", 100, true), None, at(0), 0.0));
        assert!(entries.insert(callers_key("lease"), leased(1000, true), None, at(0), 0.0));
        assert!(entries.insert(callers_key("value"), plain(10), None, at(0), 0.0));
        assert!(entries.lookup(&callers_key("lease"), at(1)).is_some());
        end(&mut entries);
        assert!(entries.slots.peek_mut(&callers_key("lease")).is_none(), "case {case}");
        assert!(entries.lookup(&callers_key("value"), at(64)).is_some(), "case {case}: values stay");
    }
}

#[test]
fn a_token_is_not_evicted_before_its_leases_and_serves_none_after_its_end() {
    let mut entries = EntryTable::new(10_000);
    entries.insert(key("login"), token("mine", 100, true), None, at(0), 0.0);
    entries.insert(callers_key("lease"), leased(1000, true), None, at(0), 0.0);
    entries.insert(key("a"), plain(4000), None, at(0), 0.0);
    assert!(entries.lookup(&callers_key("lease"), at(1)).is_some());
    entries.insert(key("b"), plain(5000), None, at(1), 0.0);
    assert!(entries.lookup(&key("a"), at(1)).is_none(), "it was evicted");
    assert!(entries.lookup(&callers_key("lease"), at(98)).is_some());
    assert!(entries.lookup(&callers_key("lease"), at(100)).is_none(), "its renewal is late");
    assert!(!entries.insert(callers_key("lease"), leased(1000, true), None, at(100), 0.0));
}

#[test]
fn a_restored_lease_of_a_callers_token_needs_the_entry_that_issued_it() {
    let restored = |key: CacheKey, entry: CacheEntry| {
        let lease = SavedLease::new(&ActiveLease::issued(entry.lease_ref().unwrap().lease(), at(0), 0.0), at(0));
        RestoredEntry { key, entry, age: Duration::ZERO, lease: lease.restore(at(0)), with_session: false }
    };
    for has_token in [true, false] {
        let mut entries = EntryTable::new(10_000);
        let token = has_token.then(|| restored(key("login"), token("mine", 100, true)));
        let lease = restored(callers_key("lease"), leased(1000, true));
        entries.restore([Some(lease), token].into_iter().flatten().collect(), at(0));
        assert_eq!(entries.lookup(&callers_key("lease"), at(1)).is_some(), has_token);
    }
}

#[test]
fn a_write_removes_the_values_below_its_path_and_no_leases() {
    let mut entries = EntryTable::new(10_000);
    entries.insert(key("a/value"), plain(10), None, at(0), 0.0);
    entries.insert(key("a/lease"), leased(100, true), None, at(0), 0.0);
    assert_eq!(entries.remove_values_below("", "a"), 1);
    assert!(entries.lookup(&key("a/value"), at(1)).is_none() && entries.lookup(&key("a/lease"), at(1)).is_some());
}
