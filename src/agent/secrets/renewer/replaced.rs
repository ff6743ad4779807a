//! Leases that were replaced by newer ones: each is revoked once its grace period is over.

use super::SecretRenewer;
use crate::agent::server_client::SecretLease;
use crate::clock::ClockReading;
use crate::error_chain::format_chain;

impl<T> SecretRenewer<T> {
    /// Revokes the replaced leases whose grace period is over. After a failure they end by themselves.
    pub(super) async fn revoke_replaced(&mut self) {
        let Some(token) = self.token.clone() else { return };
        let clock = &self.deps.clock;
        let (due, rest) = std::mem::take(&mut self.replaced).into_iter().partition(|(_, at)| clock.has_reached(*at));
        self.replaced = rest;
        let due: Vec<(SecretLease, ClockReading)> = due;
        for (lease, _) in due {
            let upstream = &self.deps.upstream;
            let revoked = upstream.revoke_lease(&token.secret, &lease, self.options.namespace.as_deref()).await;
            if let Err(error) = revoked {
                let (secret, error) = (&self.options.name, format_chain(&error));
                tracing::info!(
                    event = "agent.secret.cleanup_failed",
                    secret,
                    error,
                    "a replaced lease was not revoked"
                );
            }
        }
    }
}
