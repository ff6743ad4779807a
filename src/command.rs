//! Programs that are started: with an environment made for them, in a process group of their own, with no descriptor but the
//! first three. Whoever drops a running one ends it, and what it has started.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::process::{Child, Command};

use crate::clock::Clock;
use crate::secret::ct_eq;

/// Variables for a program. Their values may be secrets: nothing shows them.
#[derive(Clone, Default)]
pub struct EnvVars(BTreeMap<String, SecretString>);

impl EnvVars {
    /// Of this process's variables those that any program may have (where to find programs, who the user is, language and time
    /// zone), and those that `pass` names; a name there may end in `*`. Never those of [`is_reserved`].
    pub fn allowed(of: &BTreeMap<String, String>, pass: &[String]) -> Self {
        let named = |name: &str, pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let passes = |name: &str| {
            !is_reserved(name)
                && (ALWAYS_PASSED.iter().any(|its| named(name, its)) || pass.iter().any(|its| named(name, its)))
        };
        let passed = of.iter().filter(|(name, _)| passes(name));
        Self(passed.map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))).collect())
    }

    /// One variable's value.
    pub fn get(&self, name: &str) -> Option<&SecretString> {
        self.0.get(name)
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<String>, value: SecretString) {
        self.0.insert(name.into(), value);
    }

    /// The same with these set too.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        self.0.extend(others.0.iter().map(|(name, value)| (name.clone(), value.clone())));
        self
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl PartialEq for EnvVars {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((name, value), (its, theirs))| name == its && ct_eq(value, theirs.expose_secret().as_bytes()))
    }
}

impl Eq for EnvVars {}

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// What every program may have of this process's environment.
pub const ALWAYS_PASSED: [&str; 11] =
    ["HOME", "HOSTNAME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER"];

/// Whether a variable is for this process alone, whatever is asked for: the cloud's identity and its endpoints, and what the
/// service manager says to the one process that it started. The end of a name may stand as `*`.
pub fn is_reserved(name: &str) -> bool {
    ["AZURE_", "IDENTITY_", "MSI_", "LISTEN_", "WATCHDOG_"].iter().any(|start| name.starts_with(start))
        || ["NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"].contains(&name)
}

/// Something that a program waits for, once it is there.
#[derive(Debug)]
pub enum ProvidedEnv {
    /// A variable of this name and its value.
    Variable(String, SecretString),
    /// Several variables.
    Variables(EnvVars),
    /// A file, as it should be.
    File,
}

/// A program and what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// Its name or path, and its arguments. Never empty, never a secret.
    pub command: Vec<String>,
    /// All that its environment holds.
    pub variables: EnvVars,
}

impl CommandSpec {
    /// The program and its arguments, that a shell takes apart.
    pub fn shell_argv(line: &str) -> Vec<String> {
        ["/bin/sh", "-c", line].map(str::to_owned).to_vec()
    }

    fn to_command(&self) -> std::process::Command {
        let (program, arguments) = self.command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let mut command = std::process::Command::new(program);
        command.args(arguments).env_clear();
        command.envs(self.variables.0.iter().map(|(name, value)| (name, value.expose_secret())));
        command
    }

    /// Starts it, beside this process. It has this one's standard output and error, and its standard input where `input` says
    /// so. From a thread that stays: see [`crate::os::isolate_child`].
    ///
    /// # Errors
    /// There is no such program, or it may not be run.
    pub fn start(&self, input: bool) -> std::io::Result<ChildProcess> {
        let mut command = self.to_command();
        if !input {
            command.stdin(Stdio::null());
        }
        crate::os::isolate_child(&mut command);
        let child = Command::from(command).spawn()?;
        // A process that was just started and not waited for has its id.
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(ChildProcess { child, group })
    }

    /// Becomes the program: this process goes on as it. Returns only where that failed.
    pub fn exec(&self) -> std::io::Error {
        crate::os::exec_program(&mut self.to_command())
    }

    /// Starts it and waits for its end, at most for `limit`; then it is killed with all that it has started.
    ///
    /// # Errors
    /// It did not start, did not end in time, or ended with another code than 0.
    pub async fn run(&self, limit: Duration, clock: &Clock) -> Result<(), CommandError> {
        let mut running = self.start(false).map_err(CommandError::Start)?;
        tokio::select! {
            ended = running.ended() => match ended.map_err(CommandError::Start)? {
                status if status.success() => Ok(()),
                status => Err(CommandError::Failed(describe_exit(status))),
            },
            () = clock.sleep(limit) => Err(CommandError::TimedOut { after: limit }),
        }
    }
}

/// A program that was started.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    group: Option<Pid>,
}

impl ChildProcess {
    /// Its process id, until it was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns once it has ended; what it has started and left behind is killed.
    ///
    /// # Errors
    /// The system does not say how it ended.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.kill();
        status
    }

    /// Sends it a signal; what it has started gets none.
    pub fn signal(&self, signal: Signal) {
        // An id that was waited for may be another's by now.
        if let Some(process) = self.child.id().and(self.group) {
            let _ = kill_process(process, signal);
        }
    }

    /// Kills it and all that it has started, where that is still in its group.
    pub fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // While a member lives, no other group has this number. Once none does, there is nobody to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The code that a shell would give for how a program ended: its own, or 128 and the signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// How a program ended, in words.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The signal of a name such as `SIGHUP` or `HUP`, of those that programs take as a word.
pub fn parse_signal(name: &str) -> Option<Signal> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    SIGNALS.iter().find(|(its, _)| *its == name).map(|(_, signal)| *signal)
}

/// The name of such a signal.
pub fn signal_name(signal: Signal) -> &'static str {
    SIGNALS.iter().find(|(_, its)| *its == signal).map_or("?", |(name, _)| name)
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

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The system did not start it.
    #[error("it cannot be started")]
    Start(#[source] std::io::Error),
    /// It ended badly.
    #[error("it {0}")]
    Failed(String),
    /// It did not end.
    #[error("it did not end within {} s and was killed", after.as_secs_f32())]
    TimedOut {
        /// The time it had.
        after: Duration,
    },
}

#[cfg(test)]
mod tests;
