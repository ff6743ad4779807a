//! How a session stays in: when to renew, when to log in again, what to do when neither works.
//!
//! `schedule` and `pace` decide and are pure; `keeper` acts on what they say; `resume` keeps what outlives a restart.

mod inflight;
mod caller_tries;
mod shutdown;
mod current_token;
mod token_manager;
pub mod retry_budget;
mod status_reporter;
pub mod session_state;
pub mod schedule;
mod state_encryption;
mod suspicion;

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::secret;

pub use shutdown::Farewell;
pub use token_manager::{Parts, TokenKeeper};

/// How a token is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The session's name.
    pub name: String,
    /// Interval of the light check that notices a dead token; `None` turns it off.
    pub check_interval: Option<Duration>,
    /// The first login waits a random share of this.
    pub login_jitter: Duration,
    /// Whether to revoke the token at the end, and those that it replaced and that live.
    pub revoke_on_exit: bool,
    /// Where the state that outlives a restart is kept: the backoff always, the token if sealed.
    pub state: Option<State>,
}

/// The state that outlives a restart.
#[derive(Debug, Clone)]
pub struct State {
    /// The session's file.
    pub file: PathBuf,
    /// Key that seals the token into the file; without one the token is not kept.
    pub seal: Option<SecretString>,
}

impl PartialEq for State {
    /// The key is compared in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && secret::same_or_none(self.seal.as_ref(), other.seal.as_ref())
    }
}
