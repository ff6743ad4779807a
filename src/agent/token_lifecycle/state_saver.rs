//! Saves a session's state in the background, and loads that of the previous process.

use std::time::Duration;

use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use tokio::task::JoinSet;

use super::SessionStateOptions;
use super::current_token::CurrentToken;
use super::state_file::{LoadedState, SessionStateFile};
use crate::login::Login;
use crate::retry_budget::RetryBudget;

/// The state file of a session, if it has one, and the writes that are under way.
#[derive(Debug)]
pub(super) struct StateSaver {
    session: String,
    fingerprint: String,
    bound_to: [String; 4],
    file: Option<SessionStateFile>,
    /// False until [`StateSaver::load`] is done: a write before would refill the retry budget of the previous process.
    is_loaded: bool,
    writes: JoinSet<()>,
}

impl StateSaver {
    /// Creates a saver without a file. A saved token opens only for the same `session` and login; `identity` describes the
    /// identity source.
    pub(super) fn new(session: &str, fingerprint: String, login: &Login, identity: &str) -> Self {
        let options = login.options();
        // Methods without a role are distinguished by their identity source.
        let role = if options.role.is_empty() { identity } else { &options.role };
        let namespace = options.namespace.as_deref().unwrap_or_default();
        let bound_to = [login.server().address(), namespace, &options.mount, role].map(str::to_owned);
        let session = session.to_owned();
        let writes = JoinSet::new();
        Self { session, fingerprint, bound_to, file: None, is_loaded: false, writes }
    }

    /// Uses the file of these options from now on; `None` saves nothing.
    pub(super) fn open(&mut self, options: Option<&SessionStateOptions>) {
        let bound_to = self.bound_to.each_ref().map(String::as_str);
        self.file = options.map(|options| {
            SessionStateFile::new(options, &self.session, &bound_to, &self.fingerprint)
                .continue_order_of(self.file.as_ref())
        });
    }

    /// Loads the state of the previous process.
    pub(super) async fn load(&mut self, now: ClockReading) -> LoadedState {
        let Some(file) = self.file.take() else {
            self.is_loaded = true;
            return LoadedState::default();
        };
        let path = file.path().display().to_string();
        let read = tokio::task::spawn_blocking(move || {
            let loaded = file.load(now);
            (file, loaded)
        });
        let loaded = if let Ok(Ok((file, loaded))) = tokio::time::timeout(LOAD_LIMIT, read).await {
            self.file = Some(file);
            loaded
        } else {
            // A disk that hangs now will hang later: the session runs without its state file.
            let session = &self.session;
            let code = ErrorCode::StateNotSaved.as_str();
            let error = format!("{path} was not read within {} s", LOAD_LIMIT.as_secs());
            tracing::warn!(
                event = "state.write.failed",
                session,
                code,
                error,
                "the session runs without its state file; restart the agent once the disk responds"
            );
            LoadedState::default()
        };
        self.is_loaded = true;
        if let Some(refused) = &loaded.refused {
            let session = &self.session;
            let error = format_chain(refused);
            let code = ErrorCode::SavedStateRejected.as_str();
            tracing::warn!(
                event = "state.refused",
                session,
                code,
                error,
                "ignoring saved state of the previous process"
            );
        }
        loaded
    }

    /// Writes the file in the background, if its content has changed. Nothing is written before it is loaded.
    pub(super) fn save(&mut self, budget: &RetryBudget, current: Option<&CurrentToken>, last_error: Option<&str>) {
        // A set keeps the results of ended tasks until they are taken.
        while self.writes.try_join_next().is_some() {}
        if let Some(write) = self.write(budget, current, last_error) {
            self.writes.spawn(write);
        }
    }

    /// Returns a write of the file for the moment before a login: a crash during the login must not refill the bucket, and a
    /// disk that hangs must not delay the login.
    pub(super) fn save_before_login(
        &mut self,
        budget: &RetryBudget,
        current: Option<&CurrentToken>,
        last_error: Option<&str>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let write = self.write(budget, current, last_error);
        async move {
            if let Some(write) = write {
                // Giving the write up does not interrupt it: the file is replaced once the disk responds.
                let _ = tokio::time::timeout(SAVE_LIMIT, write).await;
            }
        }
    }

    /// Waits for the writes under way.
    pub(super) async fn finish(mut self) {
        let written = async { while self.writes.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SAVE_LIMIT, written).await;
    }

    fn write(
        &mut self,
        budget: &RetryBudget,
        current: Option<&CurrentToken>,
        last_error: Option<&str>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let last_error = last_error.filter(|_| budget.failures() > 0);
        self.file.as_mut().filter(|_| self.is_loaded)?.save(&budget.to_record(), current, last_error)
    }
}

const LOAD_LIMIT: Duration = Duration::from_secs(5);
const SAVE_LIMIT: Duration = Duration::from_secs(2);
