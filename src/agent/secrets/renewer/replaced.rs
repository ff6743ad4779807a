//! Leases that were replaced by newer ones: each is revoked once its grace period is over.

use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;

use super::SecretRenewer;

impl<T> SecretRenewer<T> {
    /// Returns the time of the next revocation; `None` while another one is under way.
    pub(super) fn revoke_at(&self) -> Option<ClockReading> {
        let may_begin = self.token.is_some() && self.revocation.is_empty();
        self.replaced.iter().map(|(_, at)| *at).min_by_key(|at| at.boot).filter(|_| may_begin)
    }

    /// Begins to revoke the replaced leases whose grace period is over. After a failure they end by themselves.
    ///
    /// A task of its own: a server that does not respond to it must not delay the end of the current lease.
    pub(super) fn revoke_replaced(&mut self) {
        let Some(token) = self.token.clone() else { return };
        let clock = &self.deps.clock;
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.replaced).into_iter().partition(|(_, at)| clock.has_reached(*at));
        self.replaced = rest;
        let upstream = self.deps.upstream.clone();
        let secret = self.options.name.clone();
        let namespace = self.options.namespace.clone();
        self.revocation.spawn(async move {
            for (lease, _) in due {
                if let Err(error) = upstream.revoke_lease(&token.secret, &lease, namespace.as_deref()).await {
                    let error = format_chain(&error);
                    tracing::info!(
                        event = "agent.secret.cleanup_failed",
                        secret,
                        error,
                        "cannot revoke a replaced lease; it stays valid until it expires"
                    );
                }
            }
        });
    }
}
