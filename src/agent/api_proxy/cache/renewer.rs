//! Renews the leases in the cache, removes entries that end with the session's token, and saves the entries to a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::RefreshSignal;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::entry::LeaseRef;
use super::entry_table::LeaseRenewal;
use super::key::TokenScope;
use super::shared_cache::{Cache, CacheState};
use super::snapshot;
use crate::encrypted_file::{
    BackgroundWriter, ChangeLevel, EncryptedFile, FileKind, KeyDerivationError, PersistOptions,
};
use crate::leases::{RenewalFailure, TokenFingerprint};
use crate::retry_budget::{FailureCause, RetryBudget};
use crate::server_client::{CallError, ServerClient};
use crate::token::{Lease, Token, TokenWatch};

/// Collaborators of a [`LeaseRenewer`].
#[derive(Debug, Clone)]
pub(crate) struct LeaseRenewerDeps {
    /// The session's token.
    pub tokens: TokenWatch,
    /// The session keeps its token over a restart. A derived token is replaced instead, which says nothing about the one before.
    pub outlives_restarts: bool,
    /// Requests a check by the session after the server refused its token.
    pub session: RefreshSignal,
    pub upstream: ServerClient,
    /// The namespace that the session logs in to; `None` for the root.
    pub namespace: Option<String>,
}

/// Background work of one cache.
#[derive(Debug)]
pub(crate) struct LeaseRenewer {
    cache: Cache,
    state: Arc<CacheState>,
    deps: LeaseRenewerDeps,
    token: Option<Arc<Token>>,
    retry_budget: RetryBudget,
    renewals: JoinSet<FinishedRenewal>,
    file: Option<BackgroundWriter>,
    /// The session's last token.
    fingerprint: Option<TokenFingerprint>,
}

/// Result of one renewal.
struct FinishedRenewal {
    renewal: LeaseRenewal,
    sent: ClockReading,
    /// The cached token renewed itself; otherwise the session's token renewed a secret's lease.
    renewed_itself: bool,
    /// The error is `None` if there was no token to renew with.
    result: Result<Lease, Option<CallError>>,
}

impl LeaseRenewer {
    pub(crate) fn new(cache: &Cache, deps: LeaseRenewerDeps) -> Self {
        let state = cache.state();
        let retry_budget = RetryBudget::new(state.clock.now());
        Self {
            cache: cache.clone(),
            state,
            deps,
            token: None,
            retry_budget,
            renewals: JoinSet::new(),
            file: None,
            fingerprint: None,
        }
    }

    /// Keeps the entries in a file over restarts. A file is restored only for the same `bound_to`.
    pub(crate) fn with_file(mut self, persist: &PersistOptions, bound_to: &[&str]) -> Result<Self, KeyDerivationError> {
        let file = EncryptedFile::new(persist, FileKind::CachedResponses, bound_to)?;
        self.file = Some(BackgroundWriter::new(file));
        self.state.is_persistent.store(true, Ordering::Relaxed);
        Ok(self)
    }

    /// Restores the entries of the previous process, so that the first request finds them.
    pub(crate) async fn restore(&mut self) {
        let Some(file) = &self.file else { return };
        let now = self.state.clock.now();
        let max_age = self.cache.max_stale_age();
        let parse = move |json: &[u8]| snapshot::deserialize(json, max_age, now);
        let Some((fingerprint, restored)) = file.load(parse).await else { return };
        let count = restored.len();
        {
            let mut entries = self.state.entries();
            // A request of the replaced listener ended after that had saved the file: any entry may be older.
            if self.state.was_invalidated.load(Ordering::Relaxed) {
                return;
            }
            entries.restore(restored, now);
            self.state.publish_changes(&mut entries);
        }
        self.fingerprint = fingerprint;
        tracing::info!(event = "cache.resumed", entries = count, "cache entries of the previous process are restored");
    }

    /// Runs until `stop` is cancelled or the session has ended, then saves the entries. Saves them again when `served` is ready:
    /// until then requests in flight may change them.
    pub(crate) async fn run(mut self, stop: CancellationToken, served: impl Future<Output = ()>) {
        self.follow_token();
        while let Some(true) = stop.run_until_cancelled(self.step()).await {}
        self.finish().await;
        served.await;
        self.finish().await;
    }

    /// Waits for the next event and handles it. Returns false once the session has ended.
    async fn step(&mut self) -> bool {
        let clock = self.state.clock.clone();
        let due = self.state.entries().next_due().filter(|_| self.renewals.len() < MAX_RENEWALS);
        // After a failure, all renewals wait for the backoff: the server is asked once, not once a lease.
        let due =
            due.map(
                |due| if due.boot < self.retry_budget.not_before().boot { self.retry_budget.not_before() } else { due },
            );
        let write_due = async {
            match &mut self.file {
                Some(file) => file.wait_until_due(&clock).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.deps.tokens.changed() => {
                if changed.is_err() {
                    return false;
                }
                self.follow_token();
            }
            Some(Ok(renewal)) = self.renewals.join_next() => self.record_renewal(&renewal),
            () = self.state.wake_renewer.notified() => self.schedule_changes(),
            () = clock.sleep_until_some(due) => self.start_renewal(),
            () = write_due => self.save(),
        }
        true
    }

    /// Removes what ended with the previous token. A token that ends before its time was revoked: then values that it read are
    /// removed too.
    fn follow_token(&mut self) {
        let previous = self.token.take();
        self.token = self.deps.tokens.current().availability.available();
        let now = self.state.clock.now();
        let mut removed = 0;
        let mut is_revoked = self.token.is_none()
            && previous.is_some_and(|previous| previous.expires.is_none_or(|end| !now.until(end).is_zero()));
        {
            let mut entries = self.state.entries();
            if let Some(token) = self.token.as_ref().filter(|_| entries.has_pending()) {
                let saved = self.fingerprint.as_ref();
                let is_same = saved.is_some_and(|saved| saved.matches(token));
                is_revoked = !is_same && self.deps.outlives_restarts && saved.is_some_and(|saved| saved.is_alive(now));
                removed = entries.resolve_pending(is_same.then_some(token.generation));
            }
            let current = self.token.as_ref().map(|token| token.generation);
            removed += entries.remove_where(|key, _, generation| {
                (is_revoked && key.scope == TokenScope::Session)
                    || generation.is_some_and(|generation| Some(generation) != current)
            });
            self.state.publish_changes(&mut entries);
        }
        let fingerprint = self.token.as_deref().map(TokenFingerprint::new);
        // The file names the token that its entries end with, so it is written again.
        if fingerprint.is_some() && fingerprint != self.fingerprint {
            self.fingerprint = fingerprint;
            self.schedule_write(ChangeLevel::Content);
        }
        if removed > 0 {
            tracing::info!(
                event = "cache.token.ended",
                entries = removed,
                "removed cache entries of the session's previous token"
            );
        }
    }

    fn start_renewal(&mut self) {
        let now = self.state.clock.now();
        let due = {
            let mut entries = self.state.entries();
            let due = entries.take_due(now);
            self.state.publish_changes(&mut entries);
            due
        };
        let Some(renewal) = due else { return };
        let upstream = self.deps.upstream.clone();
        let token = self.token.clone();
        let key_namespace = renewal.key.namespace_and_path().0.to_owned();
        let namespace = if key_namespace.is_empty() { self.deps.namespace.clone() } else { Some(key_namespace) };
        self.renewals.spawn(async move {
            let namespace = namespace.as_deref();
            let (renewed_itself, result) = match (renewal.entry.lease_ref(), token) {
                (Some(LeaseRef::Token(own, ..)), _) => {
                    (true, upstream.renew_self(own, namespace).await.map(|renewed| renewed.lease).map_err(Some))
                }
                (Some(LeaseRef::Secret(lease)), Some(token)) => {
                    (false, upstream.renew_lease(&token.secret, lease, namespace).await.map_err(Some))
                }
                // Without a token nothing renews it.
                (Some(LeaseRef::Secret(_)), None) | (None, _) => (false, Err(None)),
            };
            FinishedRenewal { renewal, sent: now, renewed_itself, result }
        });
    }

    fn record_renewal(&mut self, finished: &FinishedRenewal) {
        let FinishedRenewal { renewal, sent, renewed_itself, result } = finished;
        let now = self.state.clock.now();
        let unit = random_unit();
        let mut entries = self.state.entries();
        match result {
            Ok(lease) => {
                self.retry_budget.record_success(now);
                entries.record_renewal(renewal, *lease, now.rebase(*sent), unit);
            }
            Err(None) => entries.refuse_renewal(renewal, unit),
            Err(Some(error)) => {
                tracing::warn!(
                    event = "cache.renewal.failed",
                    error = format_chain(error),
                    "cannot renew a cached lease"
                );
                match RenewalFailure::from_error(error) {
                    // The cached token itself has ended, and not the session's.
                    RenewalFailure::SuspectToken if *renewed_itself => entries.remove_renewed(renewal),
                    RenewalFailure::Refused => entries.refuse_renewal(renewal, unit),
                    failure @ (RenewalFailure::Outage | RenewalFailure::SuspectToken) => {
                        if failure == RenewalFailure::SuspectToken {
                            self.deps.session.request();
                        }
                        self.retry_budget.record_failure(now, FailureCause::Transient, error.retry_after(), unit);
                        entries.retry_renewal(renewal, self.retry_budget.not_before());
                    }
                }
            }
        }
        self.state.publish_changes(&mut entries);
    }

    fn schedule_write(&mut self, changes: ChangeLevel) {
        if let Some(file) = &mut self.file {
            file.schedule(self.state.clock.now(), changes);
        }
    }

    fn schedule_changes(&mut self) {
        let changes = self.state.entries().changes();
        self.schedule_write(changes);
    }

    fn save(&mut self) {
        if let Some(file) = &mut self.file {
            file.write(self.state.snapshot(self.fingerprint.clone()));
        }
    }

    /// Saves the changes that are not saved yet.
    async fn finish(&mut self) {
        let Some(file) = &mut self.file else { return };
        let state = &self.state;
        let changes = self.state.entries().changes();
        file.finish(&state.clock, changes, || state.snapshot(self.fingerprint.clone())).await;
    }
}

/// Bounds the renewals at once.
const MAX_RENEWALS: usize = 8;
