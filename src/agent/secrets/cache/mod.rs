//! Answers of the secrets server that are given again: plain values for a bounded time, what was issued as long as it lives.
//!
//! `issued` reads an answer, `shelf` keeps it and decides, `saved` is how it outlives a restart, all pure; `flight` lets one
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

pub use entry::{Kept, Kind};
pub use key::{Key, Whose};
pub use lru::Found;
pub use renewer::{Parts, Tender};
pub use singleflight::{Joined, Landed, Lead, told};

use crate::agent::token::Generation;
use crate::backoff::random_unit;
use crate::clock::Clock;
use crate::secret;
use lru::Shelf;
use singleflight::Flights;

/// What is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
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
    options: Options,
    clock: Clock,
    shelf: Mutex<Shelf>,
    flights: Flights<Arc<Whole>>,
    /// Something was put that must be tended, or something has changed that must be written.
    put: Notify,
    /// Whether answers are kept over a restart.
    persists: AtomicBool,
    bytes: Option<Gauge>,
}

/// An answer as a whole, for all who asked the same at once.
#[derive(Debug)]
pub struct Whole {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What is to be forgotten.
#[derive(Clone)]
pub enum Forget<'a> {
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
    Leases(Option<Whose>),
}

impl std::fmt::Debug for Forget<'_> {
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
    pub fn new(options: Options, clock: Clock, bytes: Option<Gauge>) -> Self {
        let (shelf, flights, put) = (Mutex::new(Shelf::new(options.bytes)), Flights::new(), Notify::new());
        let persists = AtomicBool::new(false);
        Self(Arc::new(Inner { options, clock, shelf, flights, put, persists, bytes }))
    }

    /// How old plain values may be.
    pub fn options(&self) -> Options {
        self.0.options
    }

    /// How old plain values are of no use.
    fn most_age(&self) -> Duration {
        self.0.options.stale_if_error.max(self.0.options.max_age)
    }

    /// What is there for a request.
    pub fn look(&self, key: &Key) -> Option<Found> {
        self.0.shelf().look(key, self.0.clock.now())
    }

    /// Whether what is there may be given without asking the server.
    pub fn is_fresh(&self, found: &Found) -> bool {
        found.left.is_some() || found.age <= self.0.options.max_age
    }

    /// Whether what is there may be given while the server does not answer.
    pub fn is_usable(&self, found: &Found) -> bool {
        found.left.is_some() || found.age <= self.most_age()
    }

    /// Keeps an answer. `generation` names the login whose token it was got with.
    pub fn put(&self, key: Key, kept: Kept, generation: Option<Generation>) {
        let now = self.0.clock.now();
        let issued = kept.issued().is_some();
        {
            let mut shelf = self.0.shelf();
            shelf.put(key, kept, generation, now, random_unit());
            self.0.tell(&mut shelf);
        }
        if issued {
            self.0.put.notify_one();
        }
    }

    /// Forgets what is there for a request.
    pub fn forget_one(&self, key: &Key) {
        let mut shelf = self.0.shelf();
        shelf.drop_one(key);
        self.0.tell(&mut shelf);
    }

    /// Goes, or waits for who has gone.
    pub fn join(&self, key: &Key) -> Joined<Arc<Whole>> {
        self.0.flights.join(key)
    }

    /// Forgets what is meant; gives how much that was.
    pub fn forget(&self, what: &Forget<'_>) -> usize {
        if let Forget::Accessor(accessor) = what {
            self.0.flights.outdate(|_| true);
            let tokens = self.0.shelf().tokens_of(accessor);
            return tokens.iter().map(|token| self.forget(&Forget::Token(token.as_bytes()))).sum();
        }
        let whose = match what {
            Forget::Token(token) => Some(Whose::of(token)),
            _ => None,
        };
        let start = match what {
            Forget::Path(namespace, path) => key::full_path(namespace, path),
            _ => String::new(),
        };
        let is_below = |key: &Key| {
            let (namespace, path) = key.place();
            key::full_path(namespace, path).starts_with(&start)
        };
        // What a request under way will be answered with is not known yet: any may bring the lease or the token.
        self.0.flights.outdate(|key| match what {
            Forget::Path(..) => is_below(key),
            Forget::Callers => matches!(key.whose, Whose::Caller(_)),
            Forget::Leases(Some(whose)) => *whose == key.whose,
            Forget::All | Forget::Lease(_) | Forget::Token(_) | Forget::Accessor(_) | Forget::Leases(None) => true,
        });
        self.0.drop_where(|key, issued, _| match what {
            Forget::All => true,
            Forget::Path(..) => is_below(key),
            Forget::Callers => matches!(key.whose, Whose::Caller(_)),
            Forget::Leases(whose) => issued.is_some() && whose.is_none_or(|whose| whose == key.whose),
            // It was found above.
            Forget::Accessor(_) => false,
            Forget::Lease(id) => match issued {
                Some(entry::Issued::Secret(lease)) => {
                    lease.id.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                }
                _ => false,
            },
            Forget::Token(token) => {
                let is_it = matches!(issued, Some(entry::Issued::Token(its, ..)) if secret::ct_eq(its.secret(), token));
                is_it || whose == Some(key.whose)
            }
        })
    }
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, shelf: &mut Shelf) {
        if self.persists.load(Ordering::Relaxed) && shelf.has_news() {
            self.put.notify_one();
        }
        if let Some(bytes) = &self.bytes {
            bytes.set(i64::try_from(shelf.bytes()).unwrap_or(i64::MAX));
        }
    }

    fn drop_where(&self, meant: impl Fn(&Key, Option<&entry::Issued>, Option<Generation>) -> bool) -> usize {
        let mut shelf = self.shelf();
        let dropped = shelf.drop_where(meant);
        self.tell(&mut shelf);
        dropped
    }
}
