//! Keeps a session logged in: renews its token, logs in again, and retries when neither works.
//!
//! `schedule` decides and is pure, as is [`crate::agent::retry_budget`]; `token_manager` acts; `session_state` keeps what outlives
//! a restart.

mod metrics;
pub mod schedule;
mod replacement_limit;
mod current_token;
mod saved_token;
pub(crate) mod session_state;
mod proof_cache;
mod replaced_tokens;
mod inflight;
mod shutdown;
mod status_reporter;
mod token_manager;

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::secret;

pub(crate) use metrics::{AttemptMetrics, ClockMetrics, SessionMetrics};
pub use shutdown::SessionShutdown;
pub use token_manager::{TokenManager, TokenManagerDeps};

/// Options of one session's token lifecycle.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLifecycleOptions {
    /// Name of the session in the configuration.
    pub name: String,
    /// Interval of the look-ups that detect a dead token; `None` turns them off.
    pub check_interval: Option<Duration>,
    /// Upper bound of the random wait before the first login.
    pub login_jitter: Duration,
    /// True if the token, and the replaced tokens that are still alive, are revoked at shutdown.
    pub revoke_on_exit: bool,
    /// State file that outlives a restart; it holds the backoff, and the token if there is a key.
    pub state: Option<SessionStateOptions>,
}

/// State file of a session, and the key that encrypts the token in it.
#[derive(Debug, Clone)]
pub struct SessionStateOptions {
    /// Path of the session's state file.
    pub file: PathBuf,
    /// Key that encrypts the token in the file; without one the token is not saved.
    pub seal_key: Option<SecretString>,
}

impl PartialEq for SessionStateOptions {
    /// The key is compared in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && secret::same_or_none(self.seal_key.as_ref(), other.seal_key.as_ref())
    }
}
