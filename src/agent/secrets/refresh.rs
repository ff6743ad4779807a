//! Reads a session's secrets again on request, and tells what has changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, CredentialState, RefreshRequest};
use parking_lot::Mutex;

use super::registry::{Inner, Refreshable, SecretRegistry};
use super::{SecretOp, SecretResponse};

/// The registries of all sessions, by the session's name. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SecretRegistries(Arc<Mutex<BTreeMap<String, Vec<Weak<Inner>>>>>);

impl SecretRegistries {
    /// Adds a session's registry. The one before is used again if this one is dropped, as by a reload that fails.
    pub fn insert(&self, session: &str, registry: &SecretRegistry) {
        let mut all = self.0.lock();
        let registries = all.entry(session.to_owned()).or_default();
        registries.retain(|earlier| earlier.strong_count() > 0);
        registries.push(registry.downgrade());
    }

    /// Returns a session's last registry that is in use.
    pub(crate) fn find(&self, session: &str) -> Option<SecretRegistry> {
        let inner = self.0.lock().get(session)?.iter().rev().find_map(Weak::upgrade);
        inner.map(SecretRegistry::from_inner)
    }
}

/// A secret that was to be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefreshedSecret {
    /// Path on the server.
    pub(crate) path: String,
    pub(crate) outcome: RefreshOutcome,
}

/// Outcome for one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefreshOutcome {
    /// It differs from before, and all that uses it follows.
    Changed,
    /// It is as before.
    Unchanged,
    /// It has a lease, or was made by a write: to read it again would make another one, which was not asked for.
    Kept,
    /// It could not be read; with the reason.
    Failed(String),
    /// It was read too often on request.
    RateLimited(Duration),
}

/// Scope of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefreshScope {
    /// Only secrets at this path or below it; `None` for all.
    pub(crate) path: Option<String>,
    /// Also make those anew that have a lease or were made by a write.
    pub(crate) replaces: bool,
}

impl RefreshScope {
    fn contains(&self, path: &str) -> bool {
        let Some(wanted) = &self.path else { return true };
        let wanted = wanted.trim_matches('/');
        let path = path.trim_start_matches('/');
        path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
    }
}

impl SecretRegistry {
    /// Reads the secrets of a scope again, all at once, and waits for the results.
    pub(crate) async fn refresh(&self, scope: &RefreshScope) -> Vec<RefreshedSecret> {
        let secrets = self.refreshables().into_iter().filter(|secret| scope.contains(&secret.request.path));
        let asked: Vec<_> = secrets.map(|secret| self.ask(secret, scope.replaces)).collect();
        let mut results = Vec::with_capacity(asked.len());
        for asked in asked {
            results.push(asked.result().await);
        }
        results
    }

    /// Requests a read. One of a secret that fails comes from the budget of retries, so that an outage costs no more calls, however
    /// often callers ask.
    fn ask(&self, secret: Refreshable, replaces: bool) -> Asked {
        let before = secret.watch.peek();
        let is_made = matches!(secret.request.op, SecretOp::Write(_))
            || matches!(&before.availability, Availability::Available(response) if response.lease.is_some());
        let is_failing =
            before.update_error.is_some() || matches!(before.availability, Availability::Unavailable { .. });
        let refused = if is_made && !replaces {
            Some(RefreshOutcome::Kept)
        } else if is_failing && !secret.signal.is_pending() && !self.may_retry() {
            Some(RefreshOutcome::RateLimited(Duration::from_mins(1)))
        } else {
            match secret.signal.request() {
                RefreshRequest::Accepted => None,
                RefreshRequest::RateLimited { retry_after } => Some(RefreshOutcome::RateLimited(retry_after)),
            }
        };
        Asked { secret, before, refused }
    }
}

/// Reason of a secret for which no call was made.
const NOT_READ: &str = "the session has no token now; the secret in use stays";

/// A secret whose read was requested, or was not.
struct Asked {
    secret: Refreshable,
    before: CredentialState<SecretResponse>,
    refused: Option<RefreshOutcome>,
}

impl Asked {
    async fn result(self) -> RefreshedSecret {
        let Self { secret, before, refused } = self;
        if let Some(outcome) = refused {
            return RefreshedSecret { path: secret.request.path, outcome };
        }
        secret.signal.wait().await;
        let after = secret.watch.peek();
        let outcome = match (after.update_error, after.availability) {
            (Some(error), _) => RefreshOutcome::Failed(error.text.to_string()),
            (None, Availability::Unavailable { reason, .. }) => RefreshOutcome::Failed(reason.to_string()),
            (None, now) if !now.is_same(&before.availability) => RefreshOutcome::Changed,
            (None, _) if after.last_checked == before.last_checked => RefreshOutcome::Failed(NOT_READ.to_owned()),
            (None, _) => RefreshOutcome::Unchanged,
        };
        RefreshedSecret { path: secret.request.path, outcome }
    }
}
