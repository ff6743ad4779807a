//! What the program's exit codes say.

/// How a command ended. The numbers are part of the command line's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// A wrong command line, or a failure on this machine.
    Failed = 1,
    /// The identity source or the server refused or failed.
    Remote = 2,
    /// `check` found mistakes in the configuration.
    ConfigInvalid = 3,
    /// The agent answers and is not ready, or has no token.
    NotReady = 4,
    /// The time that was allowed is over.
    TimedOut = 5,
    /// The agent or the server refuses this caller.
    Denied = 6,
    /// No agent or server answers.
    NotRunning = 7,
    /// What was named is not there.
    Missing = 8,
    /// The name or the id is taken.
    Taken = 9,
    /// It may work later, as it is.
    TryLater = 75,
    /// `run` was given a configuration with mistakes; a restart changes nothing.
    Config = 78,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
