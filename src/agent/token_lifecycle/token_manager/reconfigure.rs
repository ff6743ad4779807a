//! Applies changed options to a running manager, without a login or any other call.

use tokio::sync::watch;

use super::TokenManager;
use crate::agent::token_lifecycle::TokenLifecycleOptions;
use crate::agent::token_lifecycle::session_state::SessionStateFile;

impl TokenManager {
    /// Returns a sender that replaces the options of the running manager, without a login.
    ///
    /// Use `send_replace`. The sender may outlive the manager; later values are lost. The name and, once the first login is
    /// planned, its jitter cannot be changed.
    pub fn options_sender(&self) -> watch::Sender<TokenLifecycleOptions> {
        self.options_sender.clone()
    }

    /// Applies the latest options.
    pub(super) fn apply_options(&mut self) {
        let mut new = self.options_receiver.borrow_and_update().clone();
        new.name.clone_from(&self.options.name);
        let old = std::mem::replace(&mut self.options, new);
        if old == self.options {
            return;
        }
        if old.state != self.options.state {
            self.state_file = self.open_state_file();
        }
        if old.check_interval != self.options.check_interval && self.current.is_some() {
            self.schedule_check(self.clock.now());
        }
        let session = &self.options.name;
        tracing::info!(event = "session.options", session, "applied changed options");
        self.save_state();
    }

    pub(super) fn open_state_file(&self) -> Option<SessionStateFile> {
        let (upstream, how) = (self.login.server(), self.login.options());
        // Methods without a role are told apart by their identity source.
        let who = if how.role.is_empty() { &self.reporter.identity } else { &how.role };
        let bound_to = [upstream.address(), how.namespace.as_deref().unwrap_or_default(), &how.mount, who];
        let state = self.options.state.as_ref()?;
        Some(
            SessionStateFile::new(state, &self.options.name, &bound_to, &self.fingerprint)
                .continue_order_of(self.state_file.as_ref()),
        )
    }
}
