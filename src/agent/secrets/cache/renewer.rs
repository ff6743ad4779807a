//! Keeps what was issued alive, drops it where its end has come, its own or that of the token that it was got with, and has
//! all of it written where it is to outlive a restart.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::entry::LeaseRef;
use super::key::{CacheKey, TokenScope};
use super::lru::Due;
use super::snapshot;
use super::{Cache, Inner};
use crate::agent::secrets::encrypted_file::{
    BackgroundWriter, ChangeLevel, EncryptedFile, EncryptedFileError, LARGEST, PersistOptions,
};
use crate::agent::secrets::snapshot_format::TokenFingerprint;
use crate::agent::server_client::{CallError, ServerClient, TokenVerdict};
use crate::agent::state_file::KeyPurpose;
use crate::agent::token::{Lease, Token, TokenWatch};
use crate::agent::token_lifecycle::retry_budget::{FailureCause, RetryBudget};
use crate::backoff::random_unit;
use crate::credential_watch::{Availability, RefreshSignal};

/// What a tender works with.
#[derive(Debug, Clone)]
pub struct LeaseRenewerDeps {
    /// The session's token.
    pub tokens: TokenWatch,
    /// Whether the token is taken up after a restart; else another is made at each start, which says nothing of the one before.
    pub outlives_restarts: bool,
    /// Rung where the server says that the token is dead.
    pub session: RefreshSignal,
    /// The server.
    pub upstream: ServerClient,
    /// The namespace that the session logs in to.
    pub namespace: Option<String>,
}

/// Tends one cache.
#[derive(Debug)]
pub struct LeaseRenewer {
    cache: Cache,
    inner: Arc<Inner>,
    parts: LeaseRenewerDeps,
    token: Option<Arc<Token>>,
    pace: RetryBudget,
    /// The flag says whether it was asked with the issued token itself, not the session's.
    renewing: JoinSet<(CacheKey, bool, Result<Lease, CallError>)>,
    /// Leases of the last process that were not renewed yet.
    unproven: Vec<CacheKey>,
    persisting: Option<(EncryptedFile, BackgroundWriter)>,
    /// The session's token that there was last.
    mark: Option<TokenFingerprint>,
}

impl LeaseRenewer {
    /// One that has done nothing yet.
    pub fn new(cache: &Cache, parts: LeaseRenewerDeps) -> Self {
        let inner = Arc::clone(&cache.0);
        let pace = RetryBudget::new(inner.clock.now());
        Self {
            cache: cache.clone(),
            inner,
            parts,
            token: None,
            pace,
            renewing: JoinSet::new(),
            unproven: Vec::new(),
            persisting: None,
            mark: None,
        }
    }

    /// Keeps the answers over a restart. What is in the file is taken for the same `bound_to` alone.
    ///
    /// # Errors
    /// No key could be made of the one that is given.
    pub fn persisting(mut self, persist: &PersistOptions, bound_to: &[&str]) -> Result<Self, EncryptedFileError> {
        let file = EncryptedFile::new(persist, KeyPurpose::Answers, bound_to)?;
        self.persisting = Some((file.clone(), BackgroundWriter::new(file)));
        self.inner.persists.store(true, Ordering::Relaxed);
        Ok(self)
    }

    /// Takes up what the last process kept, so that it is there for the first request.
    pub async fn resume(&mut self) {
        let Some((file, _)) = &self.persisting else { return };
        let (now, most) = (self.inner.clock.now(), self.cache.most_age());
        let Some((mark, taken)) = file.load(move |plain| snapshot::taken(plain, most, now)).await else { return };
        self.mark = mark;
        self.unproven = taken.iter().filter(|its| its.held.is_some()).map(|its| its.key.clone()).collect();
        tracing::info!(event = "cache.resumed", answers = taken.len(), "answers of the last process are taken up");
        let mut lru = self.inner.lru();
        lru.take_up(taken, now);
        self.inner.tell(&mut lru);
    }

    /// Tends it until `stop` is cancelled, or the session has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        self.follow();
        while let Some(true) = stop.run_until_cancelled(self.step()).await {}
        self.finish().await;
    }

    /// Does the next thing; false once the session has ended.
    async fn step(&mut self) -> bool {
        let clock = self.inner.clock.clone();
        let due = self.inner.lru().next_due().filter(|_| self.renewing.len() < AT_ONCE);
        // While the server is away nothing is asked of it.
        let due = due.map(|due| if due.boot < self.pace.not_before().boot { self.pace.not_before() } else { due });
        let writing = async {
            match &mut self.persisting {
                Some((_, writer)) => writer.time(&clock).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.parts.tokens.changed() => {
                if changed.is_err() {
                    return false;
                }
                self.follow();
            }
            Some(Ok((key, own, outcome))) = self.renewing.join_next() => self.renewed(&key, own, outcome),
            () = self.inner.put.notified() => self.changed(),
            () = clock.sleep_until_some(due) => self.renew(),
            () = writing => self.save(),
        }
        true
    }

    /// What was got with a token ends with it. One that ends before its time was revoked: then what it had read is not
    /// given any more either.
    fn follow(&mut self) {
        let before = self.token.take();
        self.token = match self.parts.tokens.current().availability {
            Availability::Available(token) => Some(token),
            Availability::Unavailable { .. } => None,
        };
        let now = self.inner.clock.now();
        let mut dropped = 0;
        let mut revoked = self.token.is_none()
            && before.is_some_and(|before| before.expires.is_none_or(|end| !now.until(end).is_zero()));
        {
            let mut lru = self.inner.lru();
            if let Some(token) = self.token.as_ref().filter(|_| lru.is_awaiting()) {
                let mark = self.mark.as_ref();
                let same = mark.is_some_and(|mark| mark.is(token));
                revoked = !same && self.parts.outlives_restarts && mark.is_some_and(|mark| mark.lives(now));
                dropped = lru.adopt(same.then_some(token.generation));
            }
            let current = self.token.as_ref().map(|token| token.generation);
            dropped += lru.drop_where(|key, _, generation| {
                (revoked && key.scope == TokenScope::Session) || generation.is_some_and(|its| Some(its) != current)
            });
            self.inner.tell(&mut lru);
        }
        let mark = self.token.as_deref().map(TokenFingerprint::of);
        if mark.is_some() && mark != self.mark {
            self.mark = mark;
            self.note(ChangeLevel::Content);
        }
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
            let mut lru = self.inner.lru();
            let due = lru.take_due(now);
            self.inner.tell(&mut lru);
            due
        };
        let Some(Due { key, lease_ref }) = due else { return };
        let (upstream, token) = (self.parts.upstream.clone(), self.token.clone());
        let place = key.place().0.to_owned();
        let namespace = if place.is_empty() { self.parts.namespace.clone() } else { Some(place) };
        match (lease_ref, token) {
            (LeaseRef::Token(own, ..), _) => self.renewing.spawn(async move {
                let renewed = upstream.renew_self(&own, namespace.as_deref()).await;
                (key, true, renewed.map(|renewed| renewed.lease))
            }),
            (LeaseRef::Secret(lease), Some(token)) => self.renewing.spawn(async move {
                let renewed = upstream.renew_lease(&token.secret, &lease, namespace.as_deref()).await;
                (key, false, renewed)
            }),
            // Nothing to renew it with.
            (LeaseRef::Secret(_), None) => return self.inner.lru().renewed(&key, None, now, random_unit()),
        };
    }

    fn renewed(&mut self, key: &CacheKey, own: bool, outcome: Result<Lease, CallError>) {
        let now = self.inner.clock.now();
        let mut lru = self.inner.lru();
        let unproven = self.unproven.iter().position(|its| its == key);
        match outcome {
            Ok(lease) => {
                self.pace.record_success(now);
                lru.renewed(key, Some(lease), now, random_unit());
                unproven.map(|at| self.unproven.swap_remove(at));
            }
            Err(error) => {
                let verdict = error.verdict();
                tracing::warn!(event = "cache.renewal.failed", %error, "a lease that is kept could not be renewed");
                let doubts_session = verdict.suspects_token() && !own;
                if doubts_session {
                    self.parts.session.request();
                }
                if verdict.suspects_token() && own {
                    self.unproven.retain(|its| its != key);
                    lru.drop_one(key);
                } else if verdict == TokenVerdict::Unavailable || doubts_session {
                    self.pace.record_failure(now, FailureCause::Transient, error.retry_after(), random_unit());
                    lru.again(key, self.pace.not_before());
                } else if let Some(at) = unproven {
                    // It was ended while nobody looked.
                    self.unproven.swap_remove(at);
                    lru.drop_one(key);
                } else {
                    // Another is got before it ends.
                    lru.renewed(key, None, now, random_unit());
                }
            }
        }
        self.inner.tell(&mut lru);
    }

    fn note(&mut self, changes: ChangeLevel) {
        if let Some((_, writer)) = &mut self.persisting {
            writer.changed(self.inner.clock.now(), changes);
        }
    }

    fn changed(&mut self) {
        let changes = self.inner.lru().changes();
        self.note(changes);
    }

    fn save(&mut self) {
        let now = self.inner.clock.now();
        let mark = self.mark.clone();
        if let Some((_, writer)) = &mut self.persisting {
            let lines = self.inner.lru().lines(LARGEST, now);
            writer.write(move || snapshot::plain(&lines, mark, now));
        }
    }

    /// Writes what was not written yet.
    async fn finish(&mut self) {
        self.changed();
        let clock = self.inner.clock.clone();
        let Some((_, writer)) = &mut self.persisting else { return };
        if writer.settled(&clock).await {
            self.save();
            let Some((_, writer)) = &mut self.persisting else { return };
            writer.settled(&clock).await;
        }
    }
}

/// How many leases are renewed at once.
const AT_ONCE: usize = 8;
