//! Answers of the secrets server that are given again: plain values for a bounded time, what was issued as long as it lives.
//!
//! `lease_ref` reads an answer, `lru` keeps it and decides, `saved` is how it outlives a restart, all pure; `flight` lets one
//! request go for all who ask the same; `tend` renews leases, drops what ends with the session's token, and has all written.

mod key;
mod entry;
mod snapshot;
mod lru;
mod singleflight;
mod renewer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

pub use entry::{CacheEntry, EntryKind};
pub use key::{CacheKey, TokenScope};
pub use lru::CacheHit;
pub use renewer::{LeaseRenewer, LeaseRenewerDeps};
pub use singleflight::{FlightResult, JoinOutcome, Leader, told};

use crate::agent::token::Generation;
use crate::backoff::random_unit;
use crate::clock::Clock;
use crate::secret;
use lru::LruCache;
use singleflight::Singleflight;

/// What is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// How many bytes are kept.
    pub bytes: usize,
    /// How old a plain value may be that is given without asking the server.
    pub max_age: Duration,
    /// How old it may be while the server does not answer.
    pub stale_if_error: Duration,
}

/// Keeps answers. Clones share them.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: CacheLimits,
    clock: Clock,
    lru: Mutex<LruCache>,
    singleflight: Singleflight<Arc<BufferedResponse>>,
    /// Something was put that must be tended, or something has changed that must be written.
    put: Notify,
    /// Whether answers are kept over a restart.
    persists: AtomicBool,
    bytes: Option<Gauge>,
}

/// An answer as a whole, for all who asked the same at once.
#[derive(Debug)]
pub struct BufferedResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What is to be forgotten.
#[derive(Clone)]
pub enum Invalidate<'a> {
    /// All of it.
    All,
    /// What was got at paths that begin so, in a namespace.
    Path(&'a str, &'a str),
    /// What has this lease, or a lease below it.
    Lease(&'a str),
    /// What was got with this token, and the token itself where it was got.
    Token(&'a [u8]),
    /// The same by a token's accessor, where the token was got through this cache.
    Accessor(&'a str),
    /// All that callers have got with tokens of their own.
    Callers,
    /// All that was issued, or what was issued to one.
    Leases(Option<TokenScope>),
}

impl std::fmt::Debug for Invalidate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Path(..) => "Path",
            Self::Lease(_) => "Lease",
            Self::Token(_) => "Token",
            Self::Accessor(_) => "Accessor",
            Self::Callers => "Callers",
            Self::Leases(_) => "Leases",
        })
    }
}

impl Cache {
    /// Keeps nothing yet. `bytes` tells how much is kept.
    pub fn new(options: CacheLimits, clock: Clock, bytes: Option<Gauge>) -> Self {
        let (lru, singleflight, put) = (Mutex::new(LruCache::new(options.bytes)), Singleflight::new(), Notify::new());
        let persists = AtomicBool::new(false);
        Self(Arc::new(Inner { options, clock, lru, singleflight, put, persists, bytes }))
    }

    /// How old plain values may be.
    pub fn options(&self) -> CacheLimits {
        self.0.options
    }

    /// How old plain values are of no use.
    fn most_age(&self) -> Duration {
        self.0.options.stale_if_error.max(self.0.options.max_age)
    }

    /// What is there for a request.
    pub fn lookup(&self, key: &CacheKey) -> Option<CacheHit> {
        self.0.lru().lookup(key, self.0.clock.now())
    }

    /// Whether what is there may be given without asking the server.
    pub fn is_fresh(&self, found: &CacheHit) -> bool {
        found.left.is_some() || found.age <= self.0.options.max_age
    }

    /// Whether what is there may be given while the server does not answer.
    pub fn is_usable(&self, found: &CacheHit) -> bool {
        found.left.is_some() || found.age <= self.most_age()
    }

    /// Keeps an answer. `generation` names the login whose token it was got with.
    pub fn put(&self, key: CacheKey, kept: CacheEntry, generation: Option<Generation>) {
        let now = self.0.clock.now();
        let lease_ref = kept.lease_ref().is_some();
        {
            let mut lru = self.0.lru();
            lru.put(key, kept, generation, now, random_unit());
            self.0.tell(&mut lru);
        }
        if lease_ref {
            self.0.put.notify_one();
        }
    }

    /// Forgets what is there for a request.
    pub fn forget_one(&self, key: &CacheKey) {
        let mut lru = self.0.lru();
        lru.drop_one(key);
        self.0.tell(&mut lru);
    }

    /// Goes, or waits for who has gone.
    pub fn join(&self, key: &CacheKey) -> JoinOutcome<Arc<BufferedResponse>> {
        self.0.singleflight.join(key)
    }

    /// Forgets what is meant; gives how much that was.
    pub fn forget(&self, what: &Invalidate<'_>) -> usize {
        if let Invalidate::Accessor(accessor) = what {
            self.0.singleflight.outdate(|_| true);
            let tokens = self.0.lru().tokens_of(accessor);
            return tokens.iter().map(|token| self.forget(&Invalidate::Token(token.as_bytes()))).sum();
        }
        let scope = match what {
            Invalidate::Token(token) => Some(TokenScope::of(token)),
            _ => None,
        };
        let start = match what {
            Invalidate::Path(namespace, path) => key::full_path(namespace, path),
            _ => String::new(),
        };
        let is_below = |key: &CacheKey| {
            let (namespace, path) = key.place();
            key::full_path(namespace, path).starts_with(&start)
        };
        // What a request under way will be answered with is not known yet: any may bring the lease or the token.
        self.0.singleflight.outdate(|key| match what {
            Invalidate::Path(..) => is_below(key),
            Invalidate::Callers => matches!(key.scope, TokenScope::Caller(_)),
            Invalidate::Leases(Some(scope)) => *scope == key.scope,
            Invalidate::All
            | Invalidate::Lease(_)
            | Invalidate::Token(_)
            | Invalidate::Accessor(_)
            | Invalidate::Leases(None) => true,
        });
        self.0.drop_where(|key, lease_ref, _| match what {
            Invalidate::All => true,
            Invalidate::Path(..) => is_below(key),
            Invalidate::Callers => matches!(key.scope, TokenScope::Caller(_)),
            Invalidate::Leases(scope) => lease_ref.is_some() && scope.is_none_or(|scope| scope == key.scope),
            // It was found above.
            Invalidate::Accessor(_) => false,
            Invalidate::Lease(id) => match lease_ref {
                Some(entry::LeaseRef::Secret(lease)) => {
                    lease.id.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                }
                _ => false,
            },
            Invalidate::Token(token) => {
                let is_it =
                    matches!(lease_ref, Some(entry::LeaseRef::Token(its, ..)) if secret::ct_eq(its.secret(), token));
                is_it || scope == Some(key.scope)
            }
        })
    }
}

impl Inner {
    fn lru(&self) -> MutexGuard<'_, LruCache> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, lru: &mut LruCache) {
        if self.persists.load(Ordering::Relaxed) && lru.has_news() {
            self.put.notify_one();
        }
        if let Some(bytes) = &self.bytes {
            bytes.set(i64::try_from(lru.bytes()).unwrap_or(i64::MAX));
        }
    }

    fn drop_where(&self, meant: impl Fn(&CacheKey, Option<&entry::LeaseRef>, Option<Generation>) -> bool) -> usize {
        let mut lru = self.lru();
        let dropped = lru.drop_where(meant);
        self.tell(&mut lru);
        dropped
    }
}
