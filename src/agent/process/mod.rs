//! The child process, which runs with the rendered variables.
//!
//! `policy` and `restart_limit` decide without IO; `supervisor` acts.

// 0: decisions
mod metrics;
mod policy;
mod restart_limit;

// 1: actions
mod inputs;
mod supervisor;

pub use self::inputs::ProcessInputs;
pub use self::metrics::ProcessMetrics;
pub use self::policy::{OnChange, RestartMode};
pub use self::restart_limit::RestartLimit;
pub use self::supervisor::{KILL_TIMEOUT, Supervisor, SupervisorDeps};

use std::time::Duration;

use rustix::process::Signal;

use keyward_machine::command::EnvVars;

/// Options of the child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment besides the rendered variables.
    pub variables: EnvVars,
    /// Reaction to a change of a variable.
    pub on_change: OnChange,
    /// Limit of the restarts for changed variables; `None` for none.
    pub max_restarts_per: Option<RestartLimit>,
    /// Reaction to the end of the process.
    pub restart: RestartMode,
    /// Signal that asks it to end.
    pub stop_signal: Signal,
    /// Time to end after that signal, before it is killed.
    pub stop_timeout: Duration,
    /// Time without changes before a reaction: variables that change together are one change.
    pub debounce: Duration,
}
