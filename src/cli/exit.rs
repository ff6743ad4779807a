//! Exit codes of the program.

/// Exit code of a command. The numbers are part of the command line's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok,
    /// A wrong command line, or a failure on this machine.
    Failed,
    /// The identity source or the server refused or failed.
    Remote,
    /// `check` found errors in the configuration.
    ConfigInvalid,
    /// The agent answers and is not ready, or has no token.
    NotReady,
    /// The timeout has passed.
    TimedOut,
    /// The agent or the server refuses this caller.
    Denied,
    /// No agent or server answers.
    NotRunning,
    /// The named object does not exist.
    Missing,
    /// The name or the id is in use.
    AlreadyExists,
    /// `migrate` has written a configuration that needs a review.
    ActionRequired,
    /// Something works but is about to fail.
    AtRisk,
    /// A later attempt may succeed.
    TryLater,
    /// `run` was given a configuration with errors; a restart changes nothing.
    Config,
    /// Exit code of the program that keyward ran.
    OfProgram(u8),
}

impl Exit {
    const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Remote => 2,
            Self::ConfigInvalid => 3,
            Self::NotReady => 4,
            Self::TimedOut => 5,
            Self::Denied => 6,
            Self::NotRunning => 7,
            Self::Missing => 8,
            Self::AlreadyExists => 9,
            Self::ActionRequired => 10,
            Self::AtRisk => 11,
            Self::TryLater => 75,
            Self::Config => 78,
            Self::OfProgram(code) => code,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
