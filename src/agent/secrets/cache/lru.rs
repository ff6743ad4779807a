//! The answers that are kept: how old they are, how long they are good, and which goes where room is needed. Time is passed
//! in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::entry::{CacheEntry, LeaseRef};
use super::key::{CacheKey, TokenScope};
use super::snapshot::{Line, Taken};
use crate::agent::secrets::encrypted_file::ChangeLevel;
use crate::agent::secrets::lease::{LeaseState, Step, next_step};
use crate::agent::secrets::snapshot_format::SavedLease;
use crate::agent::token::{Generation, Lease};
use crate::clock::ClockReading;

/// All of them.
#[derive(Debug)]
pub(super) struct LruCache {
    entries: HashMap<CacheKey, Entry>,
    bytes: usize,
    /// How many bytes may be kept.
    most: usize,
    /// Goes on with each use.
    turn: u64,
    /// Stands for the login of the last process, until it is known whether its token lives: what it has got is not given
    /// meanwhile.
    awaited: Option<Generation>,
    /// What has changed since [`LruCache::lines`], and what of that was told.
    changes: ChangeLevel,
    told: ChangeLevel,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<CacheEntry>,
    since: ClockReading,
    /// How old it was by then.
    before: Duration,
    held: Option<Held>,
    used: u64,
    size: usize,
}

/// What is issued, and kept alive.
#[derive(Debug)]
struct Held {
    lease_state: LeaseState,
    next: Step,
    /// The login whose token it ends with; `None` for what has a life of its own.
    generation: Option<Generation>,
    /// Whether its lease is being renewed just now.
    busy: bool,
}

impl Held {
    fn is_awaited(&self, awaited: Option<Generation>) -> bool {
        awaited.is_some() && self.generation == awaited
    }
}

/// An answer that is there.
#[derive(Debug, Clone)]
pub struct CacheHit {
    pub(super) kept: Arc<CacheEntry>,
    /// Time since the server gave it.
    pub age: Duration,
    /// What is left of its life; `None` for plain values.
    pub left: Option<Duration>,
}

impl CacheHit {
    /// The body to answer with.
    pub fn body(&self) -> bytes::Bytes {
        self.kept.body(self.left.unwrap_or_default())
    }
}

/// What is to be done for a lease.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) key: CacheKey,
    pub(super) lease_ref: LeaseRef,
}

impl LruCache {
    pub(super) fn new(most: usize) -> Self {
        let (entries, changes, told) = (HashMap::new(), ChangeLevel::None, ChangeLevel::None);
        Self { entries, bytes: 0, most, turn: 0, awaited: None, changes, told }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is there for a request. What was issued is there until it is time to get another.
    pub(super) fn lookup(&mut self, key: &CacheKey, now: ClockReading) -> Option<CacheHit> {
        self.turn += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.turn;
        if entry.held.as_ref().is_some_and(|held| held.is_awaited(self.awaited)) {
            return None;
        }
        let left = entry.held.as_ref().map(|held| now.until(held.lease_state.ends()));
        if left.is_some_and(|left| left.is_zero()) {
            self.drop_one(key);
            return None;
        }
        Some(CacheHit { kept: Arc::clone(&entry.kept), age: entry.before + now.since(entry.since), left })
    }

    /// Keeps an answer in place of what was there; those that were not used for longest go where there is no room. `unit` is
    /// a random number in `0.0..1.0`.
    pub(super) fn put(
        &mut self,
        key: CacheKey,
        kept: CacheEntry,
        generation: Option<Generation>,
        now: ClockReading,
        unit: f64,
    ) {
        let same = kept.lease_ref().is_none() && self.entries.get(&key).is_some_and(|there| there.kept.is_same(&kept));
        let held = kept.lease_ref().map(|lease_ref| {
            let lease = lease_ref.lease();
            // What a caller's own token has got is not the agent's to renew.
            let refused = matches!(key.scope, TokenScope::Caller(_));
            let lease_state = LeaseState { since: now, lease, first: lease.ttl, refused };
            Held { lease_state, next: next_step(now, Some(lease_state), lease.ttl, unit), generation, busy: false }
        });
        self.insert(key, kept, now, Duration::ZERO, held);
        self.changes = self.changes.max(if same { ChangeLevel::AgeOnly } else { ChangeLevel::Content });
    }

    /// Takes up what the last process kept. What had been got with the session's token waits for [`LruCache::adopt`] under the
    /// generation that this gives.
    pub(super) fn take_up(&mut self, all: Vec<Taken>, now: ClockReading) {
        let awaited = *self.awaited.get_or_insert_with(Generation::new);
        for Taken { key, kept, age, held, with_session } in all {
            let generation = with_session.then_some(awaited);
            let held = held.map(|(lease_state, next)| Held { lease_state, next, generation, busy: false });
            self.insert(key, kept, now, age, held);
        }
        self.changes = ChangeLevel::None;
    }

    /// Whether it is not known yet what became of the last process's token.
    pub(super) const fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// What became of it: it lives on as the token of that login, or it is dead. Gives how much was dropped.
    pub(super) fn adopt(&mut self, login: Option<Generation>) -> usize {
        let Some(awaited) = self.awaited.take() else { return 0 };
        let Some(login) = login else { return self.drop_where(|_, _, its| its == Some(awaited)) };
        for held in self.entries.values_mut().filter_map(|entry| entry.held.as_mut()) {
            if held.generation == Some(awaited) {
                held.generation = Some(login);
            }
        }
        0
    }

    /// What is to be written: at most so many bytes, of what was used last. From here on what changes is news.
    pub(super) fn lines(&mut self, most: usize, now: ClockReading) -> Vec<Line> {
        (self.changes, self.told) = (ChangeLevel::None, ChangeLevel::None);
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.used));
        let mut room = most;
        entries.retain(|(_, entry)| {
            let fits = entry.size <= room;
            room -= if fits { entry.size } else { 0 };
            fits
        });
        let line = |(key, entry): (&CacheKey, &Entry)| Line {
            key: key.clone(),
            kept: Arc::clone(&entry.kept),
            age: entry.before + now.since(entry.since),
            lease_state: entry.held.as_ref().map(|held| SavedLease::of(&held.lease_state, held.next, now)),
            with_session: entry.held.as_ref().is_some_and(|held| held.generation.is_some()),
        };
        // The one that was used last is put last, and so is the last to go.
        entries.into_iter().rev().map(line).collect()
    }

    /// The tokens of this accessor that are kept.
    pub(super) fn tokens_of(&self, accessor: &str) -> Vec<Zeroizing<String>> {
        let lease_ref = self.entries.values().filter_map(|entry| entry.kept.lease_ref());
        let token = |lease_ref: &LeaseRef| match lease_ref {
            LeaseRef::Token(token, _, Some(its)) if its == accessor => {
                Some(Zeroizing::new(token.secret().expose_secret().to_owned()))
            }
            LeaseRef::Token(..) | LeaseRef::Secret(_) => None,
        };
        lease_ref.filter_map(token).collect()
    }

    /// What has changed since it was written.
    pub(super) const fn changes(&self) -> ChangeLevel {
        self.changes
    }

    /// Whether there is more of that than was told.
    pub(super) fn has_news(&mut self) -> bool {
        let news = self.changes > self.told;
        self.told = self.changes;
        news
    }

    fn insert(&mut self, key: CacheKey, kept: CacheEntry, since: ClockReading, before: Duration, held: Option<Held>) {
        self.drop_one(&key);
        let size = key.size() + kept.size() + size_of::<Entry>();
        if size > self.most {
            return;
        }
        while self.bytes + size > self.most {
            let Some(oldest) = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
            else {
                break;
            };
            self.drop_one(&oldest);
        }
        self.turn += 1;
        self.bytes += size;
        self.entries.insert(key, Entry { kept: Arc::new(kept), since, before, held, used: self.turn, size });
    }

    /// Drops what is there for a request.
    pub(super) fn drop_one(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.size;
            self.changes = ChangeLevel::Content;
        }
    }

    /// Drops what is meant.
    pub(super) fn drop_where(
        &mut self,
        meant: impl Fn(&CacheKey, Option<&LeaseRef>, Option<Generation>) -> bool,
    ) -> usize {
        let before = self.entries.len();
        let (bytes, awaited) = (&mut self.bytes, self.awaited);
        self.entries.retain(|key, entry| {
            // What is awaited is no login that has ended.
            let generation = entry.held.as_ref().and_then(|held| held.generation).filter(|its| Some(*its) != awaited);
            let stays = !meant(key, entry.kept.lease_ref(), generation);
            if !stays {
                *bytes -= entry.size;
            }
            stays
        });
        let dropped = before - self.entries.len();
        if dropped > 0 {
            self.changes = ChangeLevel::Content;
        }
        dropped
    }

    /// When something is to be done for a lease; `None` while there is nothing.
    pub(super) fn next_due(&self) -> Option<ClockReading> {
        let held = self.entries.values().filter_map(|entry| entry.held.as_ref());
        let waiting = held.filter(|held| !held.busy && !held.is_awaited(self.awaited));
        waiting.map(|held| held.next.at()).min_by_key(|at| at.boot)
    }

    /// Drops what is at the end of its time, and gives a lease that is to be renewed.
    pub(super) fn take_due(&mut self, now: ClockReading) -> Option<Due> {
        let awaited = self.awaited;
        let is_due = |held: &Held| !held.busy && !held.is_awaited(awaited) && now.until(held.next.at()).is_zero();
        let ended: Vec<CacheKey> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                entry.held.as_ref().is_some_and(|held| is_due(held) && matches!(held.next, Step::ReadAt(_)))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in &ended {
            self.drop_one(key);
        }
        let (key, entry) = self.entries.iter_mut().find(|(_, entry)| entry.held.as_ref().is_some_and(is_due))?;
        let held = entry.held.as_mut()?;
        held.busy = true;
        Some(Due { key: key.clone(), lease_ref: entry.kept.lease_ref()?.clone() })
    }

    /// Notes what became of a renewal: the lease that there is now, or that there will be no more of it.
    pub(super) fn renewed(&mut self, key: &CacheKey, outcome: Option<Lease>, now: ClockReading, unit: f64) {
        let Some(held) = self.entries.get_mut(key).and_then(|entry| entry.held.as_mut()) else { return };
        held.busy = false;
        match outcome {
            Some(lease) => held.lease_state.renewed(now, lease),
            None => held.lease_state.refused = true,
        }
        held.next = next_step(now, Some(held.lease_state), held.lease_state.lease.ttl, unit);
        self.changes = ChangeLevel::Content;
    }

    /// Notes that a renewal is to be tried again at that time.
    pub(super) fn again(&mut self, key: &CacheKey, at: ClockReading) {
        if let Some(held) = self.entries.get_mut(key).and_then(|entry| entry.held.as_mut()) {
            held.busy = false;
            let ends = held.lease_state.ends();
            held.next = if at.boot < ends.boot { Step::RenewAt(at) } else { Step::ReadAt(ends) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::Method;

    use super::*;
    use crate::agent::secrets::cache::entry::EntryKind;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    fn key(path: &str) -> CacheKey {
        CacheKey::new(TokenScope::Session, &Method::GET, "", path, None, b"")
    }

    fn plain(bytes: usize) -> CacheEntry {
        let body = format!(r#"{{"data":{{"a":"{}"}}}}"#, "x".repeat(bytes));
        CacheEntry::take(EntryKind::Plain, body.as_bytes()).unwrap()
    }

    fn leased(seconds: u64, renewable: bool) -> CacheEntry {
        let body =
            format!(r#"{{"data":{{}},"lease_id":"x/{seconds}","lease_duration":{seconds},"renewable":{renewable}}}"#);
        CacheEntry::take(EntryKind::Leased, body.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_not_used_for_longest_goes_where_there_is_no_room() {
        let mut lru = LruCache::new(10_000);
        for name in ["a", "b", "c"] {
            lru.put(key(name), plain(2000), None, at(0), 0.0);
        }
        assert!(lru.lookup(&key("a"), at(1)).is_some());
        lru.put(key("d"), plain(3000), None, at(2), 0.0);
        let there: Vec<_> =
            ["a", "b", "c", "d"].into_iter().filter(|it| lru.lookup(&key(it), at(3)).is_some()).collect();
        assert_eq!(there, ["a", "c", "d"]);
        assert!(lru.bytes() <= 10_000);
        lru.put(key("e"), plain(20_000), None, at(4), 0.0);
        assert!(lru.lookup(&key("e"), at(4)).is_none() && lru.len() == 3, "larger than all the room");
        assert_eq!(lru.drop_where(|_, _, _| true), 3);
        assert_eq!((lru.bytes(), lru.len()), (0, 0));
    }

    #[test]
    fn a_lease_is_renewed_while_it_grows_and_its_life_is_told_by_its_last_renewal() {
        let mut lru = LruCache::new(10_000);
        lru.put(key("a"), leased(100, true), None, at(0), 0.0);
        assert_eq!(lru.lookup(&key("a"), at(40)).unwrap().left, Some(Duration::from_mins(1)));
        assert_eq!(lru.next_due(), Some(at(63)));
        assert!(lru.take_due(at(62)).is_none());
        let due = lru.take_due(at(63)).unwrap();
        assert!(lru.take_due(at(63)).is_none() && lru.next_due().is_none(), "it is being renewed");
        lru.renewed(&due.key, Some(Lease { ttl: Duration::from_secs(100), renewable: true }), at(64), 0.0);
        assert_eq!(lru.lookup(&key("a"), at(104)).unwrap().left, Some(Duration::from_mins(1)));
        assert_eq!(lru.lookup(&key("a"), at(104)).unwrap().age, Duration::from_secs(104));
        // Near the end that no renewal passes it grows no more: another is got before it ends.
        let due = lru.take_due(at(127)).unwrap();
        lru.renewed(&due.key, Some(Lease { ttl: Duration::from_secs(40), renewable: true }), at(127), 0.0);
        assert!(lru.take_due(at(150)).is_none() && lru.lookup(&key("a"), at(150)).is_some());
        assert!(lru.take_due(at(153)).is_none() && lru.lookup(&key("a"), at(153)).is_none());
    }

    #[test]
    fn a_lease_that_cannot_be_renewed_is_given_until_another_must_be_got() {
        let mut lru = LruCache::new(10_000);
        lru.put(key("a"), leased(100, false), None, at(0), 0.0);
        assert!(lru.take_due(at(62)).is_none() && lru.lookup(&key("a"), at(62)).is_some());
        assert!(lru.take_due(at(63)).is_none() && lru.lookup(&key("a"), at(63)).is_none());
        let mut lru = LruCache::new(10_000);
        lru.put(key("a"), leased(100, true), None, at(0), 0.0);
        let due = lru.take_due(at(70)).unwrap();
        lru.again(&due.key, at(90));
        assert!(lru.take_due(at(89)).is_none() && lru.take_due(at(90)).is_some());
        lru.again(&due.key, at(190));
        assert!(lru.lookup(&key("a"), at(99)).is_some() && lru.lookup(&key("a"), at(100)).is_none());
    }
}
