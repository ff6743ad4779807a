//! Leases that a newer one has replaced: each is revoked once its time of grace is over.

use super::SecretRenewer;
use crate::agent::server_client::SecretLease;
use crate::clock::ClockReading;

impl<T> SecretRenewer<T> {
    /// Gives back the leases whose time of grace is over. Where that fails they end by themselves.
    pub(super) async fn give_back(&mut self) {
        let Some(token) = self.token.clone() else { return };
        let clock = &self.deps.clock;
        let (due, kept) = std::mem::take(&mut self.replaced).into_iter().partition(|(_, at)| clock.has_reached(*at));
        self.replaced = kept;
        let due: Vec<(SecretLease, ClockReading)> = due;
        for (lease, _) in due {
            let back = self.deps.upstream.revoke_lease(&token.secret, &lease, self.options.namespace.as_deref()).await;
            if let Err(error) = back {
                let name = &self.options.name;
                tracing::info!(event = "agent.secret.left", secret = name, %error, "a replaced lease was not given back");
            }
        }
    }
}
