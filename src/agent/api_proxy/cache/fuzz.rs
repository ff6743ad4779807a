//! Entry point of the fuzz target `cached`.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Method;
use keyward_machine::clock::{Clock, ClockReading};

use super::entry::{CacheEntry, EntryKind};
use super::key::{CacheKey, TokenScope};
use super::shared_cache::{Cache, CacheLimits, Invalidate};
use super::snapshot;
use crate::api_proxy::path::ApiPath;
use crate::encrypted_file::MAX_CONTENT;
use crate::token::Generation;

/// A cache with a clock that only [`FuzzedCache::advance`] moves.
#[derive(Debug)]
pub struct FuzzedCache {
    cache: Cache,
    now: ClockReading,
    login: Generation,
}

/// Token of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FuzzedScope<'a> {
    /// The session's.
    Session,
    /// The caller's own.
    Caller(&'a [u8]),
    /// None.
    Anonymous,
}

/// A request as a listener passes it to the cache.
#[derive(Debug, Clone)]
pub struct FuzzedRequest<'a> {
    /// Token.
    pub scope: FuzzedScope<'a>,
    /// Method.
    pub method: Method,
    /// Namespace; empty for the root.
    pub namespace: &'a str,
    /// Path from `/v1/` on, as it came.
    pub path: &'a str,
    /// Query.
    pub query: Option<&'a str>,
    /// Body.
    pub body: &'a [u8],
}

/// An entry that was found.
#[derive(Debug, PartialEq, Eq)]
pub struct FuzzedHit {
    /// Body of the response.
    pub body: Bytes,
    /// Remaining lifetime of the lease.
    pub remaining: Option<Duration>,
}

/// Age up to which the cache serves a plain value.
const MAX_AGE: Duration = Duration::from_hours(1);

impl FuzzedRequest<'_> {
    fn key(&self) -> Option<CacheKey> {
        let path = ApiPath::parse(self.path).ok()?;
        let scope = match self.scope {
            FuzzedScope::Session => TokenScope::Session,
            FuzzedScope::Caller(token) => TokenScope::from_token(token),
            FuzzedScope::Anonymous => TokenScope::Anonymous,
        };
        let path = path.without_trailing_slash();
        Some(CacheKey::new(scope, &self.method, self.namespace, path, self.query, self.body))
    }
}

impl FuzzedCache {
    /// Creates an empty cache of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        Self::starting_at(ClockReading { boot: Duration::from_hours(1), wall }, bytes)
    }

    fn starting_at(now: ClockReading, bytes: usize) -> Self {
        let limits = CacheLimits { bytes, max_age: MAX_AGE, stale_if_error: MAX_AGE };
        // The clock of a cache is read by its listeners, its entries are given the time.
        let cache = Cache::new(limits, Clock::System, None);
        Self { cache, now, login: Generation::new() }
    }

    /// Inserts a response with status 200; returns false if it is not cached. `unit` is a random number in `0.0..1.0`.
    pub fn insert(&self, request: &FuzzedRequest<'_>, is_leased: bool, body: &[u8], unit: f64) -> bool {
        let kind = if is_leased { EntryKind::Leased } else { EntryKind::Plain };
        let (Some(key), Some(entry)) = (request.key(), CacheEntry::parse(kind, body)) else { return false };
        let generation = (request.scope == FuzzedScope::Session).then_some(self.login);
        self.cache.state().entries().insert(key, entry, generation, self.now, unit)
    }

    /// Returns the entry that is served to a request without asking the server.
    pub fn lookup(&self, request: &FuzzedRequest<'_>) -> Option<FuzzedHit> {
        let hit = self.cache.state().entries().lookup(&request.key()?, self.now)?;
        self.cache.is_fresh(&hit).then(|| FuzzedHit { body: hit.body(), remaining: hit.remaining })
    }

    /// Removes what a write to a path may change.
    pub fn invalidate_path(&self, namespace: &str, path: &str) {
        self.cache.invalidate(&Invalidate::Path(namespace, path));
    }

    /// Removes what was requested with a token, and the response that issued it.
    pub fn invalidate_token(&self, token: &[u8]) {
        self.cache.invalidate(&Invalidate::Token(token));
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    /// Returns the content of the cache's file.
    pub fn save(&self) -> Option<Vec<u8>> {
        let entries = self.cache.state().entries().entries_to_save(MAX_CONTENT, self.now);
        snapshot::serialize(&entries, None, self.now)
    }

    /// Restores the content of a file in a new cache of at most `bytes`, whose session has the same token.
    pub fn restore(&self, file: &[u8], bytes: usize) -> Option<Self> {
        let restored = Self::starting_at(self.now, bytes);
        let (_, entries) = snapshot::deserialize(file, MAX_AGE, self.now).ok()?;
        let state = restored.cache.state();
        let mut contents = state.entries();
        contents.restore(entries, self.now);
        contents.resolve_pending(Some(restored.login));
        drop(contents);
        Some(restored)
    }
}
