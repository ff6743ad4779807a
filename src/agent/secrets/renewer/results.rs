//! Counts the calls for a secret, and reports that they succeed again.

use super::SecretRenewer;
use crate::agent::secrets::{SecretMetrics, SecretResponse};
use crate::agent::server_client::CallError;
use crate::agent::token::Lease;
use crate::clock::ClockReading;

/// Result of a successful call.
pub(super) enum CallResult {
    Read(SecretResponse),
    Renewed(Lease),
}

impl<T> SecretRenewer<T> {
    pub(super) fn count_call(&self, renewal: bool, result: &Result<CallResult, CallError>) {
        let call = if renewal { "renew" } else { "read" };
        self.deps.metrics.get::<SecretMetrics>().count_call(&self.options.label, call, result.is_ok());
    }

    /// Records a call that gave or renewed the secret.
    pub(super) fn record_success(&mut self, now: ClockReading) {
        self.retries.succeeded(now);
        if let Some(lasted) = self.outage.end(now) {
            let secret = &self.options.name;
            tracing::info!(event = "agent.secret.recovered", secret, lasted, "the secret can be had again");
        }
    }
}
