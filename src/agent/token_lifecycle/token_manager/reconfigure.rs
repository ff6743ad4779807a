//! How a running keeper takes other options: its token stays, and nothing is asked of the server.

use tokio::sync::watch;

use super::TokenKeeper;
use crate::agent::token_lifecycle::Options;
use crate::agent::token_lifecycle::session_state::Archive;

impl TokenKeeper {
    /// The way to other options for this keeper once it runs: what is sent replaces all of them, without a login. Keep it
    /// for the session's time and use `send_replace`. It may outlive the keeper; what is sent then is lost.
    ///
    /// A name other than the session's own is not taken: it would be another session. The splay is for the first login, and
    /// of no use once that is planned.
    pub fn options_sender(&self) -> watch::Sender<Options> {
        self.sent.clone()
    }

    /// Takes the options that were sent last.
    pub(super) fn follow(&mut self) {
        let mut new = self.received.borrow_and_update().clone();
        new.name.clone_from(&self.options.name);
        let old = std::mem::replace(&mut self.options, new);
        if old == self.options {
            return;
        }
        if old.state != self.options.state {
            self.archive = self.new_archive();
        }
        if old.check_interval != self.options.check_interval && self.held.is_some() {
            self.check_later(self.clock.now());
        }
        let session = &self.options.name;
        tracing::info!(event = "session.options", session, "the session goes on with other options");
        self.save();
    }

    pub(super) fn new_archive(&self) -> Option<Archive> {
        let (upstream, how) = (self.login.upstream(), self.login.options());
        // A method without roles is told by where its proof comes from.
        let who = if how.role.is_empty() { &self.report.identity } else { &how.role };
        let bound_to = [upstream.address(), how.namespace.as_deref().unwrap_or_default(), &how.mount, who];
        let state = self.options.state.as_ref()?;
        Some(Archive::new(state, &self.options.name, &bound_to, &self.fingerprint).after(self.archive.as_ref()))
    }
}
