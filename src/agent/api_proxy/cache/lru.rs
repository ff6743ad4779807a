//! Cache entries in memory: their age, their leases, and eviction of the least recently used. Time is passed in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::entry::{CacheEntry, LeaseRef};
use super::key::{CacheKey, TokenScope};
use super::snapshot::{EntryToSave, RestoredEntry};
use crate::agent::secrets::{ChangeLevel, LeaseState, SavedLease, Step, next_step};
use crate::agent::token::{Generation, Lease};
use crate::clock::ClockReading;

/// Entries by request, bounded in bytes.
#[derive(Debug)]
pub(super) struct LruCache {
    slots: HashMap<CacheKey, Slot>,
    bytes: usize,
    max_bytes: usize,
    /// Grows with each use.
    use_counter: u64,
    /// Stands for the login of the previous process until its token is known to live. Its entries are withheld meanwhile.
    pending: Option<Generation>,
    /// Changes since [`LruCache::entries_to_save`], and the part of them that was reported.
    changes: ChangeLevel,
    reported: ChangeLevel,
}

#[derive(Debug)]
struct Slot {
    entry: Arc<CacheEntry>,
    inserted: ClockReading,
    /// Age at that time.
    age_at_insert: Duration,
    lease: Option<ActiveLease>,
    last_used: u64,
    /// In bytes.
    size: usize,
}

/// The lease of a leased entry.
#[derive(Debug)]
struct ActiveLease {
    state: LeaseState,
    next: Step,
    /// The login whose token the entry ends with; `None` for a request without the session's token.
    generation: Option<Generation>,
    is_renewing: bool,
}

impl ActiveLease {
    fn is_pending(&self, pending: Option<Generation>) -> bool {
        pending.is_some() && self.generation == pending
    }
}

/// An entry that was found for a request.
#[derive(Debug, Clone)]
pub(in crate::agent::api_proxy) struct CacheHit {
    pub(super) entry: Arc<CacheEntry>,
    /// Time since the server's response.
    pub(in crate::agent::api_proxy) age: Duration,
    /// Remaining lifetime of the lease; `None` for plain values.
    pub(in crate::agent::api_proxy) remaining: Option<Duration>,
}

impl CacheHit {
    /// Returns the response body, with the remaining lifetime in it.
    pub(in crate::agent::api_proxy) fn body(&self) -> bytes::Bytes {
        self.entry.body(self.remaining.unwrap_or_default())
    }
}

/// A lease that is due for renewal.
#[derive(Debug)]
pub(super) struct DueRenewal {
    pub(super) key: CacheKey,
    pub(super) lease_ref: LeaseRef,
}

impl LruCache {
    pub(super) fn new(max_bytes: usize) -> Self {
        let (slots, changes, reported) = (HashMap::new(), ChangeLevel::None, ChangeLevel::None);
        Self { slots, bytes: 0, max_bytes, use_counter: 0, pending: None, changes, reported }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the entry for a request. Leased entries end when it is time to request another.
    pub(super) fn lookup(&mut self, key: &CacheKey, now: ClockReading) -> Option<CacheHit> {
        self.use_counter += 1;
        let slot = self.slots.get_mut(key)?;
        slot.last_used = self.use_counter;
        if slot.lease.as_ref().is_some_and(|lease| lease.is_pending(self.pending)) {
            return None;
        }
        let remaining = slot.lease.as_ref().map(|lease| now.until(lease.state.ends()));
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            self.remove(key);
            return None;
        }
        Some(CacheHit { entry: Arc::clone(&slot.entry), age: slot.age_at_insert + now.since(slot.inserted), remaining })
    }

    /// Inserts an entry in place of the previous one, and evicts the least recently used where there is no room. `unit` is a
    /// random number in `0.0..1.0`.
    pub(super) fn insert(
        &mut self,
        key: CacheKey,
        entry: CacheEntry,
        generation: Option<Generation>,
        now: ClockReading,
        unit: f64,
    ) {
        let is_same =
            entry.lease_ref().is_none() && self.slots.get(&key).is_some_and(|slot| slot.entry.has_same_body(&entry));
        let lease = entry.lease_ref().map(|lease_ref| {
            let lease = lease_ref.lease();
            // A lease of a caller's own token is the caller's to renew.
            let renewal_refused = matches!(key.scope, TokenScope::Caller(_));
            let state = LeaseState { since: now, lease, initial_ttl: lease.ttl, renewal_refused };
            let next = next_step(now, Some(state), lease.ttl, unit);
            ActiveLease { state, next, generation, is_renewing: false }
        });
        self.insert_slot(key, entry, now, Duration::ZERO, lease);
        self.changes = self.changes.max(if is_same { ChangeLevel::AgeOnly } else { ChangeLevel::Content });
    }

    /// Inserts the entries of the previous process. Those that were requested with the session's token are withheld until
    /// [`LruCache::resolve_pending`].
    pub(super) fn restore(&mut self, restored: Vec<RestoredEntry>, now: ClockReading) {
        let pending = *self.pending.get_or_insert_with(Generation::new);
        for RestoredEntry { key, entry, age, lease, with_session } in restored {
            let generation = with_session.then_some(pending);
            let lease = lease.map(|(state, next)| ActiveLease { state, next, generation, is_renewing: false });
            self.insert_slot(key, entry, now, age, lease);
        }
        self.changes = ChangeLevel::None;
    }

    /// Returns true while it is unknown whether the previous process's token lives.
    pub(super) const fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Assigns the withheld entries to the login whose token lives on, or removes them where that token is dead. Returns the
    /// number of removed entries.
    pub(super) fn resolve_pending(&mut self, login: Option<Generation>) -> usize {
        let Some(pending) = self.pending.take() else { return 0 };
        let Some(login) = login else { return self.remove_where(|_, _, generation| generation == Some(pending)) };
        for lease in self.slots.values_mut().filter_map(|slot| slot.lease.as_mut()) {
            if lease.generation == Some(pending) {
                lease.generation = Some(login);
            }
        }
        0
    }

    /// Returns the most recently used entries of at most `max_bytes`, and resets the changes.
    pub(super) fn entries_to_save(&mut self, max_bytes: usize, now: ClockReading) -> Vec<EntryToSave> {
        (self.changes, self.reported) = (ChangeLevel::None, ChangeLevel::None);
        let mut slots: Vec<_> = self.slots.iter().collect();
        slots.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.last_used));
        let mut room = max_bytes;
        slots.retain(|(_, slot)| {
            let fits = slot.size <= room;
            room -= if fits { slot.size } else { 0 };
            fits
        });
        let to_save = |(key, slot): (&CacheKey, &Slot)| EntryToSave {
            key: key.clone(),
            entry: Arc::clone(&slot.entry),
            age: slot.age_at_insert + now.since(slot.inserted),
            lease: slot.lease.as_ref().map(|lease| SavedLease::new(&lease.state, lease.next, now)),
            with_session: slot.lease.as_ref().is_some_and(|lease| lease.generation.is_some()),
        };
        // The most recently used comes last: restored in this order, it is evicted last.
        slots.into_iter().rev().map(to_save).collect()
    }

    /// Returns the cached tokens that have this accessor.
    pub(super) fn tokens_by_accessor(&self, accessor: &str) -> Vec<Zeroizing<String>> {
        let lease_refs = self.slots.values().filter_map(|slot| slot.entry.lease_ref());
        let token = |lease_ref: &LeaseRef| match lease_ref {
            LeaseRef::Token(token, _, Some(own)) if own == accessor => {
                Some(Zeroizing::new(token.secret().expose_secret().to_owned()))
            }
            LeaseRef::Token(..) | LeaseRef::Secret(_) => None,
        };
        lease_refs.filter_map(token).collect()
    }

    /// Changes since the entries were saved.
    pub(super) const fn changes(&self) -> ChangeLevel {
        self.changes
    }

    /// Returns true if the changes exceed those that were reported before, and counts them as reported.
    pub(super) fn report_changes(&mut self) -> bool {
        let has_more = self.changes > self.reported;
        self.reported = self.changes;
        has_more
    }

    fn insert_slot(
        &mut self,
        key: CacheKey,
        entry: CacheEntry,
        inserted: ClockReading,
        age_at_insert: Duration,
        lease: Option<ActiveLease>,
    ) {
        self.remove(&key);
        let size = key.size() + entry.size() + size_of::<Slot>();
        if size > self.max_bytes {
            return;
        }
        while self.bytes + size > self.max_bytes {
            let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.last_used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
        }
        self.use_counter += 1;
        self.bytes += size;
        let (entry, last_used) = (Arc::new(entry), self.use_counter);
        self.slots.insert(key, Slot { entry, inserted, age_at_insert, lease, last_used, size });
    }

    /// Removes the entry for a request.
    pub(super) fn remove(&mut self, key: &CacheKey) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.size;
            self.changes = ChangeLevel::Content;
        }
    }

    /// Removes the entries that match and returns their number.
    pub(super) fn remove_where(
        &mut self,
        matches: impl Fn(&CacheKey, Option<&LeaseRef>, Option<Generation>) -> bool,
    ) -> usize {
        let before = self.slots.len();
        let (bytes, pending) = (&mut self.bytes, self.pending);
        self.slots.retain(|key, slot| {
            // The pending generation is no login that could have ended.
            let generation = slot.lease.as_ref().and_then(|lease| lease.generation).filter(|own| Some(*own) != pending);
            let stays = !matches(key, slot.entry.lease_ref(), generation);
            if !stays {
                *bytes -= slot.size;
            }
            stays
        });
        let removed = before - self.slots.len();
        if removed > 0 {
            self.changes = ChangeLevel::Content;
        }
        removed
    }

    /// Returns the time of the next step of any lease; `None` if there is none.
    pub(super) fn next_due(&self) -> Option<ClockReading> {
        let leases = self.slots.values().filter_map(|slot| slot.lease.as_ref());
        let waiting = leases.filter(|lease| !lease.is_renewing && !lease.is_pending(self.pending));
        waiting.map(|lease| lease.next.at()).min_by_key(|at| at.boot)
    }

    /// Removes the entries whose time is over, and returns a lease that is due for renewal.
    pub(super) fn take_due(&mut self, now: ClockReading) -> Option<DueRenewal> {
        let pending = self.pending;
        let is_due = |lease: &ActiveLease| {
            !lease.is_renewing && !lease.is_pending(pending) && now.until(lease.next.at()).is_zero()
        };
        let ended: Vec<CacheKey> = self
            .slots
            .iter()
            .filter(|(_, slot)| {
                slot.lease.as_ref().is_some_and(|lease| is_due(lease) && matches!(lease.next, Step::ReadAt(_)))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in &ended {
            self.remove(key);
        }
        let (key, slot) = self.slots.iter_mut().find(|(_, slot)| slot.lease.as_ref().is_some_and(is_due))?;
        let lease = slot.lease.as_mut()?;
        lease.is_renewing = true;
        Some(DueRenewal { key: key.clone(), lease_ref: slot.entry.lease_ref()?.clone() })
    }

    /// Records the end of a renewal: the new lease, or `None` where the lease will not grow any more.
    pub(super) fn record_renewal(&mut self, key: &CacheKey, renewed: Option<Lease>, now: ClockReading, unit: f64) {
        let Some(lease) = self.slots.get_mut(key).and_then(|slot| slot.lease.as_mut()) else { return };
        lease.is_renewing = false;
        match renewed {
            Some(renewed) => lease.state.record_renewal(now, renewed),
            None => lease.state.renewal_refused = true,
        }
        lease.next = next_step(now, Some(lease.state), lease.state.lease.ttl, unit);
        self.changes = ChangeLevel::Content;
    }

    /// Schedules another attempt to renew a lease.
    pub(super) fn retry_renewal(&mut self, key: &CacheKey, at: ClockReading) {
        if let Some(lease) = self.slots.get_mut(key).and_then(|slot| slot.lease.as_mut()) {
            lease.is_renewing = false;
            let ends = lease.state.ends();
            lease.next = if at.boot < ends.boot { Step::RenewAt(at) } else { Step::ReadAt(ends) };
        }
    }
}

#[cfg(test)]
mod tests;
