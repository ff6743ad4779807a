//! What each session is doing, in words and times that an operator can read. Never a secret.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// Where sessions post what they are doing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<String, Session>>>);

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), session);
    }

    /// Takes a session off the board.
    pub fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Every session, by name.
    pub fn sessions(&self) -> BTreeMap<String, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
