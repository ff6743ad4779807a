//! What each session is doing, in words and times that an operator can read. Never a secret.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Where the parts post what they are doing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Posted>>);

#[derive(Debug, Default)]
struct Posted {
    sessions: BTreeMap<String, Session>,
    reload_error: Option<String>,
}

/// What one session is doing. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Where the machine's identity comes from, such as `metadata service (system-assigned)`.
    pub identity: String,
    /// The secrets server's address.
    pub server: String,
    /// The role that it logs in to.
    pub role: String,
    /// Whether there is a token to serve.
    pub serving: bool,
    /// Names that the server gave the token.
    pub policies: Vec<String>,
    /// Whether the token can be renewed.
    pub renewable: bool,
    /// When the token ends; absent for one that never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// What comes next: `renew`, `login`, `wait`.
    pub next_step: String,
    /// When that is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_at: Option<String>,
    /// When the server was last asked about the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// The last failure, with its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Board {
    /// Posts what a session is doing, in place of what it posted before.
    pub fn post(&self, name: &str, session: Session) {
        self.lock().sessions.insert(name.to_owned(), session);
    }

    /// Takes a session off the board.
    pub fn remove(&self, name: &str) {
        self.lock().sessions.remove(name);
    }

    /// Every session, by name.
    pub fn sessions(&self) -> BTreeMap<String, Session> {
        self.lock().sessions.clone()
    }

    /// Posts how the last reload of the configuration went: why it failed, or that it did not.
    pub fn reloaded(&self, error: Option<String>) {
        self.lock().reload_error = error;
    }

    /// Why the last reload failed, if it did.
    pub fn reload_error(&self) -> Option<String> {
        self.lock().reload_error.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Posted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
