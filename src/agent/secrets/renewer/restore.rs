//! Restores the secret that the previous process knew, and records what the next one may restore.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::Availability;

use super::SecretRenewer;
use crate::leases::Step;
use crate::secrets::SecretResponse;
use crate::secrets::persisted_secrets::{PersistedSecrets, SecretRecord};
use crate::secrets::reread::{made_until, rewrite_after};
use crate::token::{Generation, Token};

impl<T> SecretRenewer<T> {
    /// Restores the previous process's secret and records changes for the next one. The secret is published once the server
    /// confirms it, or does not respond in time.
    pub(crate) fn with_persistence(mut self, persisted: &PersistedSecrets) -> Self {
        let now = self.deps.clock.now();
        self.persisted = Some(persisted.clone());
        if let Some((record, fingerprint)) = persisted.find_restored(&self.options.request) {
            self.publish_restored_at = Some(now + CONFIRMATION_TIMEOUT);
            if record.lease.is_some() {
                self.restored_lease = Some((record, fingerprint));
            } else {
                let (intervals, age) = (self.intervals(None), record.age(now));
                if let Some(next) = rewrite_after(&self.options.request, &record.data, intervals, age, now) {
                    (self.read_at, self.publish_restored_at) = (next.at(now, 0.5), Some(now));
                }
                self.restore(record, Generation::new());
            }
        }
        self
    }

    fn restore(&mut self, mut record: SecretRecord, generation: Generation) {
        record.login = Some(generation);
        let now = self.deps.clock.now();
        self.made_until = made_until(&self.options.request, &record.data, record.age(now), now);
        self.set_current(record, false);
    }

    /// Restores the previous process's lease if `token` requested it; returns whether it did. The secret is published once the
    /// lease is renewed; at once if it is not renewable, as no call would confirm it.
    pub(super) fn restore_lease(&mut self, token: &Token) -> bool {
        let Some((record, fingerprint)) = self.restored_lease.take() else { return false };
        let has_ended = record.lease.as_ref().is_none_or(|(_, active)| self.deps.clock.has_reached(active.ends()));
        if has_ended || !fingerprint.is_some_and(|saved| saved.matches(token)) {
            self.remove_record();
            return false;
        }
        self.restore(record, token.generation);
        if matches!(self.next(), Step::ReadAt(_)) {
            self.publish_restored();
        }
        true
    }

    /// Records the current secret for the next process.
    pub(super) fn save_record(&self) {
        // The next process may have another token, for which this is of no use.
        if self.options.request.belongs_to_token() {
            return;
        }
        if let (Some(persisted), Some(current)) = (&self.persisted, &self.current) {
            persisted.insert(&self.options.request, current.record.clone());
        }
    }

    /// Publishes the restored secret, unless it or another one is published.
    pub(super) fn publish_restored(&mut self) {
        let now = self.deps.clock.now();
        let Some(current) = self.current.as_mut().filter(|current| !current.is_published) else { return };
        let lease = current.record.lease.as_ref().map(|(lease, _)| lease.clone());
        let SecretRecord { data, suggested_ttl, .. } = &current.record;
        let response = SecretResponse { data: Arc::clone(data), lease, suggested_ttl: *suggested_ttl };
        if let Ok(projected) = (self.deps.projection)(&self.options, &response, now) {
            current.is_published = true;
            let age_seconds = current.record.age(now).as_secs();
            tracing::info!(
                event = "agent.secret.resumed",
                secret = self.options.name,
                age_seconds,
                "the secret of the previous process is used"
            );
            self.deps.publisher.publish(Availability::Available(Arc::new(projected)), None);
            if let Some(health) = &self.deps.health {
                health.set_ready();
            }
        }
    }

    /// Drops a restored secret that the server no longer returns.
    pub(super) fn drop_unpublished(&mut self) {
        if self.current.as_ref().is_some_and(|current| !current.is_published) {
            self.current = None;
            self.remove_record();
        }
    }

    pub(super) fn remove_record(&self) {
        if let Some(persisted) = &self.persisted {
            persisted.remove(&self.options.request);
        }
    }
}

/// Time for the server to confirm a restored secret before it is published unconfirmed.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(3);
