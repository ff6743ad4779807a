//! Keeps what was issued alive, and drops it where its end has come: its own, or that of the token that it was got with.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::issued::Issued;
use super::key::{Key, Whose};
use super::shelf::Due;
use super::{Cache, Inner};
use crate::agent::lifecycle::pace::{Failure, Pace};
use crate::agent::token::{Lease, Token, TokenFeed};
use crate::agent::upstream::{CallError, Upstream, Verdict};
use crate::backoff::random_unit;
use crate::feed::{Nudge, State};

/// What a tender works with.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The session's token.
    pub tokens: TokenFeed,
    /// Rung where the server says that the token is dead.
    pub session: Nudge,
    /// The server.
    pub upstream: Upstream,
    /// The namespace that the session logs in to.
    pub namespace: Option<String>,
}

/// Tends one cache.
#[derive(Debug)]
pub struct Tender {
    inner: Arc<Inner>,
    parts: Parts,
    token: Option<Arc<Token>>,
    pace: Pace,
    renewing: JoinSet<(Key, Result<Lease, CallError>)>,
}

impl Tender {
    /// One that has done nothing yet.
    pub fn new(cache: &Cache, parts: Parts) -> Self {
        let inner = Arc::clone(&cache.0);
        let pace = Pace::new(inner.clock.now());
        Self { inner, parts, token: None, pace, renewing: JoinSet::new() }
    }

    /// Tends it until `stop` is cancelled, or the session has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        self.follow();
        while let Some(true) = stop.run_until_cancelled(self.step()).await {}
    }

    /// Does the next thing; false once the session has ended.
    async fn step(&mut self) -> bool {
        let clock = self.inner.clock.clone();
        let due = self.inner.shelf().next_due().filter(|_| self.renewing.len() < AT_ONCE);
        // While the server is away nothing is asked of it.
        let due = due.map(|due| if due.boot < self.pace.not_before().boot { self.pace.not_before() } else { due });
        tokio::select! {
            changed = self.parts.tokens.changed() => {
                if changed.is_err() {
                    return false;
                }
                self.follow();
            }
            Some(Ok((key, outcome))) = self.renewing.join_next() => self.renewed(&key, outcome),
            () = self.inner.put.notified() => {}
            () = clock.sleep_until_some(due) => self.renew(),
        }
        true
    }

    /// What was got with a token ends with it. One that ends before its time was revoked: then what it had read is not
    /// given any more either.
    fn follow(&mut self) {
        let before = self.token.take();
        self.token = match self.parts.tokens.current().state {
            State::Serving(token) => Some(token),
            State::None { .. } => None,
        };
        let now = self.token.as_ref().map(|token| token.generation);
        let clock = &self.inner.clock;
        let revoked =
            now.is_none() && before.is_some_and(|before| before.expires.is_none_or(|end| !clock.has_reached(end)));
        let dropped = self.inner.drop_where(|key, _, generation| {
            (revoked && key.whose == Whose::Session) || generation.is_some_and(|its| Some(its) != now)
        });
        if dropped > 0 {
            tracing::info!(
                event = "cache.token.ended",
                dropped,
                "what was got with the token before is not given any more"
            );
        }
    }

    fn renew(&mut self) {
        let now = self.inner.clock.now();
        let due = {
            let mut shelf = self.inner.shelf();
            let due = shelf.take_due(now);
            self.inner.tell(&shelf);
            due
        };
        let Some(Due { key, issued }) = due else { return };
        let (upstream, token) = (self.parts.upstream.clone(), self.token.clone());
        let place = key.place().0.to_owned();
        let namespace = if place.is_empty() { self.parts.namespace.clone() } else { Some(place) };
        match (issued, token) {
            (Issued::Token(own, _), _) => self.renewing.spawn(async move {
                let renewed = upstream.renew_self(&own, namespace.as_deref()).await;
                (key, renewed.map(|renewed| renewed.lease))
            }),
            (Issued::Secret(lease), Some(token)) => self.renewing.spawn(async move {
                let renewed = upstream.renew_lease(&token.secret, &lease, namespace.as_deref()).await;
                (key, renewed)
            }),
            // Nothing to renew it with.
            (Issued::Secret(_), None) => return self.inner.shelf().renewed(&key, None, now, random_unit()),
        };
    }

    fn renewed(&mut self, key: &Key, outcome: Result<Lease, CallError>) {
        let now = self.inner.clock.now();
        let mut shelf = self.inner.shelf();
        match outcome {
            Ok(lease) => {
                self.pace.succeeded(now);
                shelf.renewed(key, Some(lease), now, random_unit());
            }
            Err(error) => {
                let verdict = error.verdict();
                tracing::warn!(event = "cache.renewal.failed", %error, "a lease that is kept could not be renewed");
                if verdict == Verdict::Dead {
                    self.parts.session.ring();
                }
                if matches!(verdict, Verdict::Unavailable | Verdict::Dead) {
                    self.pace.failed(now, Failure::Passing, error.retry_after(), random_unit());
                    shelf.again(key, self.pace.not_before());
                } else {
                    // Another is got before it ends.
                    shelf.renewed(key, None, now, random_unit());
                }
            }
        }
    }
}

/// How many leases are renewed at once.
const AT_ONCE: usize = 8;
