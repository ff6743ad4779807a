//! Keeps a session logged in: renews its token, logs in again, and retries when neither works.
//!
//! `token_manager` acts: it joins what the others decide and keep. `schedule` decides and is pure, as is
//! [`crate::retry_budget`]; `budgeted_schedule` plans with both, and `lookup_timer` plans look-ups. `session_calls` sends,
//! `session_publisher` publishes. `credential_files` notices when a failed login may succeed. `state_saver` keeps what outlives a restart: `state_file` has its form, and `token_record`
//! that of the token in it.

mod metrics;

// 0: a session's tokens
pub mod schedule;
mod replacement_limit;
mod current_token;
mod shutdown;

// 1: what is called and when
mod proof_cache;
mod credential_files;
mod session_calls;
mod budgeted_schedule;
mod lookup_timer;
mod caller_requests;

// 2: what others see of it, and what outlives a restart
mod status_reporter;
mod session_publisher;
mod token_record;
mod state_file;
mod state_saver;

// 3: one session
mod token_manager;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::path::PathBuf;
use std::time::Duration;

use keyward_credentials::credential_watch::RefreshSignal;
use keyward_machine::clock::Clock;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;

use crate::identity::IdentitySource;
use crate::login::Login;
use crate::session_status::SessionStatusRegistry;
use crate::token::TokenPublisher;

pub use metrics::{AttemptMetrics, ClockMetrics, SessionMetrics};
pub use shutdown::SessionShutdown;
pub use token_manager::TokenManager;

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
        self.file == other.file && secret::ct_eq_option(self.seal_key.as_ref(), other.seal_key.as_ref())
    }
}

/// Dependencies of a token manager.
#[derive(Debug)]
pub struct TokenManagerDeps {
    /// Publisher of the session's token.
    pub publisher: TokenPublisher,
    /// Source of identity proofs.
    pub identity: Box<dyn IdentitySource>,
    /// Login to the server.
    pub login: Login,
    /// Files that the connections of a login read. A change of one is a reason to repeat a failed login, as of the files of
    /// `identity`.
    pub connection_files: Vec<PathBuf>,
    /// Signal by which callers request a look-up.
    pub refresh_signal: RefreshSignal,
    /// Clock of all deadlines.
    pub clock: Clock,
    /// Registry of the session's status.
    pub session_statuses: SessionStatusRegistry,
    /// Readiness of the session: there is a usable token.
    pub health: HealthHandle,
    /// Metrics of attempts and expiry.
    pub metrics: Metrics,
    /// Digests of the login settings and, after a dot, of files that may change though the identity stays. A session does not
    /// inherit failures and backoff if either differs, and replaces a saved token if the first does.
    pub fingerprint: String,
}
