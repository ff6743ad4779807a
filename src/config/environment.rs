//! Circumstances in which a configuration is read.

use std::collections::BTreeMap;

/// Environment variables and user of the process. A value, so that tests provide their own.
#[derive(Clone, Default)]
pub struct Environment {
    /// The variables.
    pub variables: BTreeMap<String, String>,
    /// The effective user id of the agent.
    pub user: u32,
}

impl Environment {
    /// This process's own. A variable that is not UTF-8 counts as absent.
    pub fn current() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect(), user: rustix::process::geteuid().as_raw() }
    }
}

impl std::fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("variables", &self.variables.keys()).field("user", &self.user).finish()
    }
}

/// Reason why a configuration is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To check it, perhaps on another machine: something that only this machine lacks is a note.
    Check,
    /// To check it on the machine that runs it: something that the machine lacks is an error, except for a credential, which
    /// systemd passes to the unit's main process alone.
    CheckHost,
    /// To run it on this machine: something that the machine lacks is an error.
    Run,
}
