//! The cache that a listener's requests share: its entries behind a lock, its requests under way, and what invalidates both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::secret;
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use super::entry::{CacheEntry, LeaseRef};
use super::entry_table::{CacheHit, EntryTable};
use super::key::{CacheKey, TokenScope};
use super::singleflight::{BufferedResponse, JoinOutcome, Singleflight};
use super::snapshot;
use crate::encrypted_file::MAX_CONTENT;
use crate::leases::TokenFingerprint;
use crate::token::Generation;

/// Bounds of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Size of all entries, in bytes.
    pub bytes: usize,
    /// Age up to which a plain value is served without a request to the server.
    pub max_age: Duration,
    /// Age up to which a plain value is served while the server does not respond.
    pub stale_if_error: Duration,
}

/// Caches responses. Clones share the entries.
#[derive(Debug, Clone)]
pub(crate) struct Cache(Arc<CacheState>);

#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) limits: CacheLimits,
    pub(super) clock: Clock,
    entries: Mutex<EntryTable>,
    singleflight: Singleflight<Arc<BufferedResponse>>,
    /// Wakes the renewer: a lease was inserted, or a change is to be saved.
    pub(super) wake_renewer: Notify,
    /// The entries are saved to a file.
    pub(super) is_persistent: AtomicBool,
    /// Set by the first invalidation.
    pub(super) was_invalidated: AtomicBool,
    /// Cache of the listener that replaces this one's.
    successor: OnceLock<Cache>,
    bytes_gauge: Option<Gauge>,
}

impl Cache {
    /// Creates an empty cache. `bytes_gauge` shows its size.
    pub(crate) fn new(limits: CacheLimits, clock: Clock, bytes_gauge: Option<Gauge>) -> Self {
        Self(Arc::new(CacheState {
            limits,
            clock,
            entries: Mutex::new(EntryTable::new(limits.bytes)),
            singleflight: Singleflight::new(),
            wake_renewer: Notify::new(),
            is_persistent: AtomicBool::new(false),
            was_invalidated: AtomicBool::new(false),
            successor: OnceLock::new(),
            bytes_gauge,
        }))
    }

    pub(super) fn state(&self) -> Arc<CacheState> {
        Arc::clone(&self.0)
    }

    /// Age from which plain values are useless.
    pub(super) fn max_stale_age(&self) -> Duration {
        self.0.limits.stale_if_error.max(self.0.limits.max_age)
    }

    /// Reads the clock of the entries.
    pub(crate) fn now(&self) -> ClockReading {
        self.0.clock.now()
    }

    /// Returns the entry for a request, whatever its age.
    pub(crate) fn lookup(&self, key: &CacheKey) -> Option<CacheHit> {
        self.0.entries().lookup(key, self.0.clock.now())
    }

    /// Returns true if the entry may be served without a request to the server.
    pub(crate) fn is_fresh(&self, hit: &CacheHit) -> bool {
        hit.remaining.is_some() || hit.age <= self.0.limits.max_age
    }

    /// Returns true if the entry may be served while the server does not respond.
    pub(crate) fn is_usable(&self, hit: &CacheHit) -> bool {
        hit.remaining.is_some() || hit.age <= self.max_stale_age()
    }

    /// Inserts an entry unless `is_outdated` returns true. `generation` is the login whose token it was requested with.
    /// Age and lease count from `sent`, the time of the request: a slow response must not make the lease longer than it is.
    ///
    /// `is_outdated` runs under the entries' lock. An invalidation marks requests under way before it takes the lock: either
    /// `is_outdated` sees the mark, or the invalidation removes the entry.
    pub(crate) fn insert_unless(
        &self,
        key: CacheKey,
        entry: CacheEntry,
        sent: ClockReading,
        generation: Option<Generation>,
        is_outdated: impl FnOnce() -> bool,
    ) {
        let sent = self.now().rebase(sent);
        let is_leased = entry.lease_ref().is_some();
        {
            let mut entries = self.0.entries();
            if is_outdated() {
                return;
            }
            entries.insert(key, entry, generation, sent, random_unit());
            self.0.publish_changes(&mut entries);
        }
        if is_leased {
            self.0.wake_renewer.notify_one();
        }
    }

    /// Returns true if the cache holds a caller's own token, and thus learns of its end.
    pub(crate) fn holds_token(&self, token: TokenScope) -> bool {
        self.0.entries().holds_token(token)
    }

    /// Removes the entry for a request.
    pub(crate) fn remove(&self, key: &CacheKey) {
        let mut entries = self.0.entries();
        entries.remove(key);
        self.0.publish_changes(&mut entries);
    }

    /// Joins the request under way for the same key, or starts one.
    pub(crate) fn join(&self, key: &CacheKey) -> JoinOutcome<Arc<BufferedResponse>> {
        self.0.singleflight.join(key)
    }

    /// Marks the request under way for the same key as outdated: the next one is sent to the server.
    pub(crate) fn mark_outdated(&self, key: &CacheKey) {
        self.0.singleflight.mark_outdated(|other| other == key);
    }

    /// Repeats each invalidation in the cache of the listener that replaces this one's: requests in flight here may change
    /// what that one has read.
    pub(crate) fn set_successor(&self, successor: &Self) {
        // Another is never set: a listener is replaced once.
        let _ = self.0.successor.set(successor.clone());
    }

    /// Removes the entries of `scope`, and marks requests under way whose response may be one of them as outdated. Returns the
    /// number of removed entries, without those of the successor.
    pub(crate) fn invalidate(&self, scope: &Invalidate<'_>) -> usize {
        self.0.was_invalidated.store(true, Ordering::Relaxed);
        let removed = self.invalidate_own(scope);
        if let Some(successor) = self.0.successor.get() {
            successor.invalidate(scope);
        }
        removed
    }

    fn invalidate_own(&self, scope: &Invalidate<'_>) -> usize {
        if let Invalidate::Accessor(accessor) = scope {
            // The response to any request under way may hold the token of this accessor.
            self.0.singleflight.mark_outdated(|_| true);
            let tokens = self.0.entries().tokens_by_accessor(accessor);
            return tokens.iter().map(|token| self.invalidate_own(&Invalidate::Token(token.as_bytes()))).sum();
        }
        let token_scope = match scope {
            Invalidate::Token(token) => Some(TokenScope::from_token(token)),
            _ => None,
        };
        let prefix = match scope {
            Invalidate::Path(namespace, path) | Invalidate::Values(namespace, path) => {
                Some(CacheKey::smallest(namespace, path))
            }
            _ => None,
        };
        let is_below = |key: &CacheKey| prefix.as_ref().is_some_and(|prefix| key.has_path_prefix(prefix));
        // The response to a request under way is unknown: it may be the one with the lease or the token.
        self.0.singleflight.mark_outdated(|key| match scope {
            Invalidate::Path(..) => is_below(key),
            Invalidate::Values(..) => key.is_read() && is_below(key),
            Invalidate::Callers => matches!(key.scope, TokenScope::Caller(_)),
            Invalidate::Leases(Some(scope)) => *scope == key.scope,
            Invalidate::All
            | Invalidate::Lease(_)
            | Invalidate::Token(_)
            | Invalidate::Accessor(_)
            | Invalidate::Leases(None) => true,
        });
        match scope {
            Invalidate::Path(namespace, path) => return self.0.remove_entries(|own| own.remove_below(namespace, path)),
            Invalidate::Values(namespace, path) => {
                return self.0.remove_entries(|own| own.remove_values_below(namespace, path));
            }
            _ => {}
        }
        let matches = |key: &CacheKey, lease_ref: Option<&LeaseRef>, _| match scope {
            Invalidate::All => true,
            Invalidate::Callers => matches!(key.scope, TokenScope::Caller(_)),
            Invalidate::Leases(scope) => lease_ref.is_some() && scope.is_none_or(|scope| scope == key.scope),
            // Handled above.
            Invalidate::Accessor(_) | Invalidate::Path(..) | Invalidate::Values(..) => false,
            Invalidate::Lease(id) => match lease_ref {
                Some(LeaseRef::Secret(lease)) => {
                    lease.id.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                }
                _ => false,
            },
            Invalidate::Token(token) => {
                let is_issued =
                    matches!(lease_ref, Some(LeaseRef::Token(own, ..)) if secret::ct_eq(own.secret(), token));
                is_issued || token_scope == Some(key.scope)
            }
        };
        self.0.remove_entries(|entries| entries.remove_where(matches))
    }
}

impl CacheState {
    pub(super) fn entries(&self) -> MutexGuard<'_, EntryTable> {
        self.entries.lock()
    }

    /// Updates the gauge, and wakes the renewer if there is more to save.
    pub(super) fn publish_changes(&self, entries: &mut EntryTable) {
        if self.is_persistent.load(Ordering::Relaxed) && entries.report_changes() {
            self.wake_renewer.notify_one();
        }
        if let Some(gauge) = &self.bytes_gauge {
            gauge.set(i64::try_from(entries.bytes()).unwrap_or(i64::MAX));
        }
    }

    /// Returns the builder of the file's content, and resets the changes.
    pub(super) fn snapshot(&self, token: Option<TokenFingerprint>) -> impl FnOnce() -> Option<Vec<u8>> + Send + use<> {
        let now = self.clock.now();
        let entries = self.entries().entries_to_save(MAX_CONTENT, now);
        move || snapshot::serialize(&entries, token, now)
    }

    fn remove_entries(&self, remove: impl FnOnce(&mut EntryTable) -> usize) -> usize {
        let mut entries = self.entries();
        let removed = remove(&mut entries);
        self.publish_changes(&mut entries);
        removed
    }
}

/// Entries to invalidate.
#[derive(Clone)]
pub(crate) enum Invalidate<'a> {
    /// All entries.
    All,
    /// Entries in a namespace whose path has this prefix.
    Path(&'a str, &'a str),
    /// The values among them, without leases.
    Values(&'a str, &'a str),
    /// Entries with this lease, or a lease below it.
    Lease(&'a str),
    /// Entries that were requested with this token, and the entry that issued it.
    Token(&'a [u8]),
    /// The same by a token's accessor, for tokens that this cache holds.
    Accessor(&'a str),
    /// Entries that were requested with callers' own tokens.
    Callers,
    /// Leased entries: all, or those of one scope.
    Leases(Option<TokenScope>),
}

impl std::fmt::Debug for Invalidate<'_> {
    /// Prints only the kind: the values are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Path(..) => "Path",
            Self::Values(..) => "Values",
            Self::Lease(_) => "Lease",
            Self::Token(_) => "Token",
            Self::Accessor(_) => "Accessor",
            Self::Callers => "Callers",
            Self::Leases(_) => "Leases",
        })
    }
}

#[cfg(test)]
mod tests;
