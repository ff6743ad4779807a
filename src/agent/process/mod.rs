//! The program that runs with the rendered variables.
//!
//! `policy` decides and is pure; `supervisor` acts.

// 0: what is done when
mod policy;

// 1: the one who does it
mod supervisor;

pub use self::policy::{OnChange, RestartDecision, RestartMode, RestartPolicy};
pub use self::supervisor::{ProcessInputs, Supervisor, SupervisorDeps};

use std::time::Duration;

use rustix::process::Signal;

use crate::command::EnvVars;

/// The child, and how it is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it finds in its environment beside the rendered variables.
    pub variables: EnvVars,
    /// What is done when a variable has changed.
    pub on_change: OnChange,
    /// What is done when it has ended by itself.
    pub restart: RestartMode,
    /// What tells it to end.
    pub stop_signal: Signal,
    /// How long it may take to, before it is killed.
    pub stop_timeout: Duration,
    /// How long the variables must have been still: several that change together are one change.
    pub debounce: Duration,
}
