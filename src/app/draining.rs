//! Listeners that a reload has stopped, and whose requests in flight still use tokens.

use keyward_config as config;
use tokio_util::sync::CancellationToken;

/// Stopped listeners that drain. Those that have ended are dropped when another is added.
#[derive(Debug, Default)]
pub(super) struct DrainingListeners(Vec<DrainingListener>);

#[derive(Debug)]
struct DrainingListener {
    /// Sessions whose tokens its requests may use.
    sessions: Vec<String>,
    /// Cancelled once it has ended.
    done: CancellationToken,
}

impl DrainingListeners {
    /// Adds a stopped listener; `done` is cancelled once it has ended.
    pub(super) fn add(&mut self, options: &config::Listener, done: CancellationToken) {
        self.0.retain(|listener| !listener.done.is_cancelled());
        if options.serves.uses_tokens() {
            self.0.push(DrainingListener { sessions: options.sessions.clone(), done });
        }
    }

    /// Returns the tokens that are cancelled once no request in flight uses the session.
    pub(super) fn of_session(&self, session: &str) -> Vec<CancellationToken> {
        let uses = |listener: &&DrainingListener| listener.sessions.iter().any(|name| name == session);
        self.0.iter().filter(uses).map(|listener| listener.done.clone()).collect()
    }
}

/// Waits until all of these tokens are cancelled.
pub(super) async fn wait_for_all(tokens: Vec<CancellationToken>) {
    for done in tokens {
        done.cancelled().await;
    }
}
