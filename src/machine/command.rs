//! Starts child processes: with an environment of their own, in a process group of their own, and with no descriptors
//! but the first three. Dropping a child process kills it and its descendants.
//!
//! An agent in a sandbox starts them through its [`spawner`], which keeps the rights that the agent gives up.

// 0: children of this process and of others; messages to the spawner
mod orphans;
mod spawner_messages;
mod executable_messages;

// 1: both ends
mod launcher;
mod executable_opener;
mod spawner;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::secret::ct_eq;
use crate::secret_string::SecretString;

pub use self::executable_messages::ExecutableAccess;
pub use self::executable_opener::ExecutableOpener;
#[cfg(any(test, feature = "test-support"))]
pub use self::launcher::EmulatedProgram;
pub use self::launcher::Launcher;
use self::launcher::SpawnedChild;
pub use self::orphans::reap_orphans;
pub use self::spawner::{SpawnerConnection, SpawnerDescriptors, SpawnerProcess, parse_spawner_invocation, run_spawner};
pub use self::spawner_messages::ConfiguredPrograms;

/// Environment variables of a command. Their values may be secrets: `Debug` shows names only.
#[derive(Clone, Default)]
pub struct EnvVars(BTreeMap<String, SecretString>);

impl EnvVars {
    /// Selects from this process's variables those that every command gets (paths, user, language, time zone) and those
    /// that `pass` names; a name there may end in `*`. Variables of [`is_reserved`] are never selected.
    pub fn select(variables: &BTreeMap<String, String>, pass: &[String]) -> Self {
        let matches = |name: &str, pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let passes = |name: &str| {
            !is_reserved(name)
                && (ALWAYS_PASSED.iter().any(|pattern| matches(name, pattern))
                    || pass.iter().any(|pattern| matches(name, pattern)))
        };
        let passed = variables.iter().filter(|(name, _)| passes(name));
        Self(passed.map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))).collect())
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&SecretString> {
        self.0.get(name)
    }

    /// Sets a variable, replacing its value.
    pub fn set(&mut self, name: impl Into<String>, value: SecretString) {
        self.0.insert(name.into(), value);
    }

    /// Returns these variables with `overrides` added, each in place of one of the same name.
    #[must_use]
    pub fn merged_with(mut self, overrides: &Self) -> Self {
        self.0.extend(overrides.0.iter().map(|(name, value)| (name.clone(), value.clone())));
        self
    }

    /// Returns the names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl PartialEq for EnvVars {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((name, value), (other_name, other_value))| {
                name == other_name && ct_eq(value, other_value.expose_secret().as_bytes())
            })
    }
}

impl Eq for EnvVars {}

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Variables of this process that every command gets; a name may end in `*`.
pub(crate) const ALWAYS_PASSED: [&str; 11] =
    ["HOME", "HOSTNAME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER"];

/// Returns true if a variable never leaves this process: the cloud's identity and its endpoints, and the service
/// manager's messages to the one process that it started. `name` may be a prefix.
pub fn is_reserved(name: &str) -> bool {
    ["AZURE_", "IDENTITY_", "MSI_", "LISTEN_", "WATCHDOG_"].iter().any(|start| name.starts_with(start))
        || ["NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"].contains(&name)
}

/// Input of a child process that it waits for before its start.
#[derive(Debug)]
pub enum ProvidedEnv {
    /// Variable with its value.
    Variable(String, SecretString),
    /// Several variables.
    Variables(EnvVars),
    /// A file that has been written.
    File,
}

/// Command line and environment of a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// Program (name or path) and arguments. Never empty, never a secret: other users can read them.
    pub command: Vec<String>,
    /// The whole environment.
    pub variables: EnvVars,
}

impl CommandSpec {
    /// Builds the argument vector that has `/bin/sh` parse a line.
    pub fn shell_argv(line: &str) -> Vec<String> {
        ["/bin/sh", "-c", line].map(str::to_owned).to_vec()
    }

    fn to_command(&self) -> std::process::Command {
        let (program, arguments) = self.command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let mut command = std::process::Command::new(program);
        // Nothing is inherited: this process's variables name the cloud's identity endpoints and the service manager's socket.
        command.args(arguments).env_clear();
        command.envs(self.variables.0.iter().map(|(name, value)| (name, value.expose_secret())));
        command
    }

    /// Starts the command as a child process. It shares this process's standard output and error, and its standard
    /// input if `inherit_stdin` is set. `permit` is dropped once it has started.
    ///
    /// The child has a thread of its own: `execve(2)` waits for a file system that does not answer, and the kernel signals a
    /// child when the thread that started it ends ([`crate::os::isolate_child`]).
    async fn start(&self, inherit_stdin: bool, permit: Option<OwnedSemaphorePermit>) -> io::Result<ChildProcess> {
        let mut command = self.to_command();
        if !inherit_stdin {
            command.stdin(Stdio::null());
        }
        crate::os::isolate_child(&mut command);
        let mut command = Command::from(command);
        let runtime = Handle::current();
        let (sender, started) = oneshot::channel();
        let parent = move || {
            let _entered = runtime.enter();
            let (keep_alive, child_dropped) = std::sync::mpsc::channel::<Infallible>();
            let started = orphans::start_own(|| command.spawn(), Child::id);
            let started = started.map(|child| OwnChild::new(child, keep_alive));
            drop((command, permit));
            // If nobody waits any more, dropping the child kills it.
            drop(sender.send(started));
            let _ = child_dropped.recv();
        };
        std::thread::Builder::new().name("program".to_owned()).stack_size(THREAD_STACK).spawn(parent)?;
        let started = started.await.map_err(|_| io::Error::other("the thread that starts it panicked"))?;
        Ok(ChildProcess::Own(started?))
    }

    /// Replaces this process by the command (`execve(2)`). Returns only on failure.
    pub fn exec(&self) -> io::Error {
        crate::os::exec_program(&mut self.to_command())
    }
}

/// A running child process; killed with its process group when dropped.
#[derive(Debug)]
pub enum ChildProcess {
    /// Child of this process.
    Own(OwnChild),
    /// Child of the spawner.
    Spawned(SpawnedChild),
}

/// Child of this process.
#[derive(Debug)]
pub struct OwnChild {
    child: Child,
    /// Process id while it counts as a child of this process's own.
    registered: Option<u32>,
    group: Option<Pid>,
    /// Keeps the thread that started the child (`PR_SET_PDEATHSIG` fires when that thread ends).
    _keep_alive: std::sync::mpsc::Sender<Infallible>,
}

/// Stack of a thread that starts a program and then waits, in bytes.
const THREAD_STACK: usize = 256 * 1024;

impl ChildProcess {
    /// Returns the process id until the process was waited for.
    pub fn id(&self) -> Option<u32> {
        match self {
            Self::Own(own) => own.child.id(),
            Self::Spawned(spawned) => spawned.pid(),
        }
    }

    /// Waits for the end of the process, then kills what is left of its process group.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Own(own) => {
                let status = own.child.wait().await;
                own.forget();
                own.kill();
                status
            }
            Self::Spawned(spawned) => spawned.wait().await,
        }
    }

    /// Sends a signal to the process only, not to its group.
    pub fn signal(&self, signal: Signal) {
        match self {
            // The id of a process that was waited for may be reused.
            Self::Own(own) => {
                if let Some(process) = own.child.id().and(own.group) {
                    let _ = kill_process(process, signal);
                }
            }
            Self::Spawned(spawned) => spawned.signal(signal),
        }
    }

    /// Kills the process group: the process and those descendants that have not left the group.
    pub fn kill(&mut self) {
        match self {
            Self::Own(own) => own.kill(),
            Self::Spawned(spawned) => spawned.kill(),
        }
    }
}

impl OwnChild {
    fn new(child: Child, keep_alive: std::sync::mpsc::Sender<Infallible>) -> Self {
        // A child that was not waited for has an id.
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let registered = child.id();
        Self { child, registered, group, _keep_alive: keep_alive }
    }

    fn forget(&mut self) {
        self.registered.take().into_iter().for_each(orphans::forget);
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // The group's id is not reused while it has a member; without a member the call has no effect.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        self.kill();
        self.forget();
    }
}

/// Converts an exit status as a shell does: the exit code, or 128 plus the signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Describes an exit status, as a predicate.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Parses a signal name such as `SIGHUP` or `HUP`.
pub fn parse_signal(name: &str) -> Option<Signal> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    SIGNALS.iter().find(|(candidate, _)| *candidate == name).map(|(_, signal)| *signal)
}

/// Returns the name of a signal without `SIG`.
pub fn signal_name(signal: Signal) -> &'static str {
    SIGNALS.iter().find(|(_, candidate)| *candidate == signal).map_or("?", |(name, _)| name)
}

const SIGNALS: [(&str, Signal); 8] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("WINCH", Signal::WINCH),
];

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The process was not started.
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    /// The process ended with an exit code other than 0, or by a signal.
    #[error("it {0}")]
    Failed(String),
    /// The process was not started in time.
    #[error("it did not start within {} s; its file system may be unresponsive", after.as_secs_f32())]
    StartTimedOut {
        /// Time limit of the command.
        after: Duration,
    },
    /// The process did not end in time.
    #[error("it did not end within {} s and was killed", after.as_secs_f32())]
    TimedOut {
        /// Time limit of the command.
        after: Duration,
    },
}

#[cfg(test)]
mod tests;
