//! Cache entries in memory: their age, and their leases. Time is passed in.

use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::ClockReading;

use super::due_queue::{DueQueue, Ticket};
use super::entry::{CacheEntry, LeaseRef};
use super::key::{CacheKey, TokenScope};
use super::lru::LruMap;
use super::path_index::PathIndex;
use super::snapshot::{EntryToSave, RestoredEntry};
use super::token_leases::TokenLeases;
use crate::encrypted_file::ChangeLevel;
use crate::leases::{ActiveLease, SavedLease, Step};
use crate::token::{Generation, Lease};

/// Entries by request, bounded in bytes.
#[derive(Debug)]
pub(super) struct EntryTable {
    slots: LruMap<CacheKey, Slot>,
    paths: PathIndex,
    token_leases: TokenLeases,
    /// Leases that wait for their next step: all but those that are renewed or withheld.
    due: DueQueue<CacheKey>,
    /// Represents the login of the previous process until its token is known to be valid. Its entries are withheld meanwhile.
    pending: Option<Generation>,
    /// Changes since [`EntryTable::entries_to_save`], and the part of them that was reported.
    changes: ChangeLevel,
    reported: ChangeLevel,
}

#[derive(Debug)]
struct Slot {
    entry: Arc<CacheEntry>,
    inserted: ClockReading,
    /// Age at that time.
    age_at_insert: Duration,
    lease: Option<CachedLease>,
}

impl Slot {
    fn generation(&self) -> Option<Generation> {
        self.lease.as_ref().and_then(|lease| lease.generation)
    }

    /// Position of the lease's next step in the queue.
    fn ticket(&self) -> Option<Ticket> {
        self.lease.as_ref().and_then(|lease| lease.ticket)
    }
}

/// The lease of a leased entry.
#[derive(Debug)]
struct CachedLease {
    active: ActiveLease,
    /// The login whose token the entry ends with; `None` for a request without the session's token.
    generation: Option<Generation>,
    /// Position of the next step in the queue; `None` during a renewal, and for withheld leases.
    ticket: Option<Ticket>,
}

/// An entry that was found for a request.
#[derive(Debug, Clone)]
pub(crate) struct CacheHit {
    pub(super) entry: Arc<CacheEntry>,
    /// Time since the request to the server.
    pub age: Duration,
    /// Remaining lifetime of the lease; `None` for plain values.
    pub remaining: Option<Duration>,
}

impl CacheHit {
    /// Returns the response body, with the remaining lifetime in it.
    pub(crate) fn body(&self) -> bytes::Bytes {
        self.entry.body(self.remaining.unwrap_or_default())
    }
}

/// A renewal under way. Its result concerns only the entry for which it began: another may take its place meanwhile.
#[derive(Debug)]
pub(super) struct LeaseRenewal {
    pub(super) key: Arc<CacheKey>,
    pub(super) entry: Arc<CacheEntry>,
}

impl EntryTable {
    pub(super) fn new(max_bytes: usize) -> Self {
        let changes = ChangeLevel::None;
        let reported = ChangeLevel::None;
        let slots = LruMap::new(max_bytes);
        let paths = PathIndex::default();
        let due = DueQueue::new();
        Self { slots, paths, token_leases: TokenLeases::default(), due, pending: None, changes, reported }
    }

    /// Size of all entries, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Returns the entry for a request. Leased entries end when it is time to request another.
    pub(super) fn lookup(&mut self, key: &CacheKey, now: ClockReading) -> Option<CacheHit> {
        let slot = self.slots.get(key)?;
        if self.pending.is_some() && slot.generation() == self.pending {
            return None;
        }
        let remaining = slot.lease.as_ref().map(|lease| now.until(lease.active.ends()));
        // `ttl` is in whole seconds, and clients read 0 as "no lease".
        if remaining.is_some_and(|remaining| remaining < Duration::from_secs(1)) {
            self.remove(key);
            return None;
        }
        let age = slot.age_at_insert + now.since(slot.inserted);
        let hit = CacheHit { entry: Arc::clone(&slot.entry), age, remaining };
        let ends_with_token = remaining.is_some() && key.scope.is_callers();
        (!ends_with_token || self.use_token(key.scope, now)).then_some(hit)
    }

    /// Returns true while the cache holds a caller's own token. Counts as a use of the token, which must not be evicted before
    /// its leases.
    fn use_token(&mut self, token: TokenScope, now: ClockReading) -> bool {
        let issuers = self.token_leases.issuers(token);
        issuers.iter().any(|issuer| self.lookup(issuer, now).is_some())
    }

    /// Returns true if an entry issued the token.
    pub(super) fn holds_token(&self, token: TokenScope) -> bool {
        self.token_leases.holds(token)
    }

    /// Inserts or replaces an entry, and evicts the least recently used where there is no room. `unit` is a
    /// random number in `0.0..1.0`. Returns false for a lease of a caller's own token that the cache does not hold: nobody would
    /// notice that it ends with its token.
    pub(super) fn insert(
        &mut self,
        key: CacheKey,
        entry: CacheEntry,
        generation: Option<Generation>,
        now: ClockReading,
        unit: f64,
    ) -> bool {
        let is_callers_lease = key.scope.is_callers() && entry.lease_ref().is_some();
        if is_callers_lease && !self.use_token(key.scope, now) {
            self.remove(&key);
            return false;
        }
        let replaced = self.take(&key);
        let is_same =
            entry.lease_ref().is_none() && replaced.is_some_and(|replaced| replaced.entry.has_same_body(&entry));
        let lease = entry.lease_ref().map(|lease_ref| {
            let mut active = ActiveLease::issued(lease_ref.lease(), now, unit);
            if is_callers_lease {
                // A lease of a caller's own token is the caller's to renew.
                active.refuse_renewal(unit);
            }
            CachedLease { active, generation, ticket: None }
        });
        self.insert_slot(key, entry, now, Duration::ZERO, lease);
        self.changes = self.changes.max(if is_same { ChangeLevel::AgeOnly } else { ChangeLevel::Content });
        true
    }

    /// Inserts the entries of the previous process. Those that were requested with the session's token are withheld until
    /// [`EntryTable::resolve_pending`].
    pub(super) fn restore(&mut self, restored: Vec<RestoredEntry>, now: ClockReading) {
        let pending = *self.pending.get_or_insert_with(Generation::new);
        for RestoredEntry { key, entry, age, lease, with_session } in restored {
            let generation = with_session.then_some(pending);
            let lease = lease.map(|active| CachedLease { active, generation, ticket: None });
            self.take(&key);
            self.insert_slot(key, entry, now, age, lease);
        }
        // A lease may come before its token, so they are compared once all are there.
        for orphan in self.token_leases.orphans() {
            self.remove(&orphan);
        }
        self.changes = ChangeLevel::None;
    }

    /// Returns true while it is unknown whether the previous process's token is valid.
    pub(super) const fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Assigns the withheld entries to the login of the restored token, or removes them if that token is dead. Returns the
    /// number of removed entries.
    pub(super) fn resolve_pending(&mut self, login: Option<Generation>) -> usize {
        let Some(pending) = self.pending.take() else { return 0 };
        let Some(login) = login else { return self.remove_where(|_, _, generation| generation == Some(pending)) };
        let keys: Vec<_> = self.slots.keys().map(Arc::clone).collect();
        for key in keys {
            let lease = self.slots.peek_mut(&key).and_then(|slot| slot.lease.as_mut());
            if let Some(lease) = lease.filter(|lease| lease.generation == Some(pending)) {
                lease.generation = Some(login);
                self.queue_next_step(key);
            }
        }
        0
    }

    /// Returns the most recently used entries of at most `max_bytes`, and resets the changes.
    pub(super) fn entries_to_save(&mut self, max_bytes: usize, now: ClockReading) -> Vec<EntryToSave> {
        (self.changes, self.reported) = (ChangeLevel::None, ChangeLevel::None);
        let to_save = |(key, slot): (&CacheKey, &Slot)| EntryToSave {
            key: key.clone(),
            entry: Arc::clone(&slot.entry),
            age: slot.age_at_insert + now.since(slot.inserted),
            lease: slot.lease.as_ref().map(|lease| SavedLease::new(&lease.active, now)),
            with_session: slot.generation().is_some(),
        };
        // The most recently used comes last: restored in this order, it is evicted last.
        self.slots.most_recent(max_bytes).into_iter().map(to_save).collect()
    }

    /// Returns the cached tokens that have this accessor.
    pub(super) fn tokens_by_accessor(&self, accessor: &str) -> Vec<String> {
        let lease_refs = self.slots.values().filter_map(|slot| slot.entry.lease_ref());
        let token = |lease_ref: &LeaseRef| match lease_ref {
            LeaseRef::Token(token, _, Some(own)) if own == accessor => Some(token.secret().expose_secret().to_owned()),
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

    /// Inserts an entry whose key is not in use.
    fn insert_slot(
        &mut self,
        key: CacheKey,
        entry: CacheEntry,
        inserted: ClockReading,
        age_at_insert: Duration,
        lease: Option<CachedLease>,
    ) {
        let index_size = PathIndex::OVERHEAD + lease.as_ref().map_or(0, |_| TokenLeases::OVERHEAD);
        let size = key.size() + entry.size() + LruMap::<CacheKey, Slot>::OVERHEAD + index_size;
        let entry = Arc::new(entry);
        let slot = Slot { entry: Arc::clone(&entry), inserted, age_at_insert, lease };
        let mut evicted = Vec::new();
        let inserted = self.slots.insert(key, slot, size, |key, slot| evicted.push((key, slot)));
        if let Some(key) = inserted {
            self.paths.insert(Arc::clone(&key));
            self.token_leases.insert(&key, entry.lease_ref());
            self.queue_next_step(key);
        }
        // After the insertion, as the new entry may be a lease of an evicted token.
        for (key, slot) in evicted {
            self.unlink(key, &slot);
            self.changes = ChangeLevel::Content;
        }
    }

    /// Queues the next step of a lease, which replaces the queued one. A withheld lease waits for no step.
    fn queue_next_step(&mut self, key: Arc<CacheKey>) {
        let Some(lease) = self.slots.peek_mut(&key).and_then(|slot| slot.lease.as_mut()) else { return };
        self.due.remove(lease.ticket);
        let is_withheld = self.pending.is_some() && lease.generation == self.pending;
        lease.ticket = (!is_withheld).then(|| self.due.insert(key, lease.active.next()));
    }

    /// Removes the entry for a request.
    pub(super) fn remove(&mut self, key: &CacheKey) {
        if self.take(key).is_some() {
            self.changes = ChangeLevel::Content;
        }
    }

    fn take(&mut self, key: &CacheKey) -> Option<Slot> {
        let (key, slot) = self.slots.remove(key)?;
        self.unlink(key, &slot);
        Some(slot)
    }

    /// Removes an entry that has left the slots from the indexes, and the leases that end with the token that it issued.
    fn unlink(&mut self, key: Arc<CacheKey>, slot: &Slot) {
        self.due.remove(slot.ticket());
        for lease in self.token_leases.remove(&key, slot.entry.lease_ref()) {
            self.remove(&lease);
        }
        self.paths.remove(key);
    }

    /// Removes the entries in a namespace whose path has this prefix, and returns their number. Looks at no others.
    pub(super) fn remove_below(&mut self, namespace: &str, path: &str) -> usize {
        let removed = self.paths.with_prefix(namespace, path);
        for key in &removed {
            self.remove(key);
        }
        removed.len()
    }

    /// Removes the plain values among them, and returns their number.
    pub(super) fn remove_values_below(&mut self, namespace: &str, path: &str) -> usize {
        let mut removed = self.paths.with_prefix(namespace, path);
        removed.retain(|key| self.slots.peek_mut(key).is_some_and(|slot| slot.lease.is_none()));
        for key in &removed {
            self.remove(key);
        }
        removed.len()
    }

    /// Removes the entries that match and returns their number. Looks at every entry.
    pub(super) fn remove_where(
        &mut self,
        matches: impl Fn(&CacheKey, Option<&LeaseRef>, Option<Generation>) -> bool,
    ) -> usize {
        let pending = self.pending;
        let removed = self.slots.keys_where(|key, slot| {
            // The pending generation is no login that could have ended.
            matches(key, slot.entry.lease_ref(), slot.generation().filter(|generation| Some(*generation) != pending))
        });
        for key in &removed {
            self.remove(key);
        }
        removed.len()
    }

    /// Returns the time of the next step of any lease; `None` if there is none.
    pub(super) fn next_due(&self) -> Option<ClockReading> {
        self.due.next()
    }

    /// Removes the entries whose time is over, and returns a lease that is due for renewal.
    pub(super) fn take_due(&mut self, now: ClockReading) -> Option<LeaseRenewal> {
        while let Some((key, step)) = self.due.pop_due(now) {
            if let (Step::RenewAt(_), Some(slot)) = (step, self.slots.peek_mut(&key)) {
                if let Some(lease) = &mut slot.lease {
                    lease.ticket = None;
                }
                return Some(LeaseRenewal { entry: Arc::clone(&slot.entry), key });
            }
            self.remove(&key);
        }
        None
    }

    fn renewed_lease(&mut self, renewal: &LeaseRenewal) -> Option<&mut CachedLease> {
        let slot = self.slots.peek_mut(&renewal.key).filter(|slot| Arc::ptr_eq(&slot.entry, &renewal.entry))?;
        slot.lease.as_mut()
    }

    /// Records a renewal.
    pub(super) fn record_renewal(&mut self, renewal: &LeaseRenewal, renewed: Lease, now: ClockReading, unit: f64) {
        let Some(lease) = self.renewed_lease(renewal) else { return };
        lease.active.record_renewal(renewed, now, unit);
        self.changes = ChangeLevel::Content;
        self.queue_next_step(Arc::clone(&renewal.key));
    }

    /// Records that a lease will not grow any more: it is served until another is due. A lease of the previous process is removed,
    /// as it may have ended while no process renewed it.
    pub(super) fn refuse_renewal(&mut self, renewal: &LeaseRenewal, unit: f64) {
        let Some(lease) = self.renewed_lease(renewal) else { return };
        if !lease.active.refuse_renewal(unit) {
            return self.remove(&renewal.key);
        }
        self.changes = ChangeLevel::Content;
        self.queue_next_step(Arc::clone(&renewal.key));
    }

    /// Schedules another attempt to renew a lease.
    pub(super) fn retry_renewal(&mut self, renewal: &LeaseRenewal, at: ClockReading) {
        let Some(lease) = self.renewed_lease(renewal) else { return };
        lease.active.retry_renewal(at);
        self.queue_next_step(Arc::clone(&renewal.key));
    }

    /// Removes the entry of a lease that has ended.
    pub(super) fn remove_renewed(&mut self, renewal: &LeaseRenewal) {
        if self.renewed_lease(renewal).is_some() {
            self.remove(&renewal.key);
        }
    }
}

#[cfg(test)]
mod tests;
