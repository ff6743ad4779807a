//! Commands that run after an output has changed. A marker beside the output stays until its command has succeeded.

mod shared;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_machine::atomic_file;
use keyward_machine::clock::Clock;
use keyward_machine::command::{CommandError, CommandSpec, EnvVars, Launcher};
use keyward_machine::secure_dir::Dir;
use rustix::fs::{Mode, OFlags};
use tokio::task::JoinSet;

pub(crate) use self::shared::SharedCommandRunner;
pub use self::shared::SharedCommands;

/// Command that runs after an output has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Time after which it is killed.
    pub timeout: Duration,
}

/// Runs a command of outputs, and keeps their markers.
#[derive(Debug)]
struct CommandRunner {
    launcher: Launcher,
    clock: Clock,
    /// The change of the marker that is in progress.
    marker: JoinSet<()>,
}

impl CommandRunner {
    fn new(launcher: Launcher, clock: Clock) -> Self {
        Self { launcher, clock, marker: JoinSet::new() }
    }

    /// Runs the command of these outputs once; after a success, later tasks do not repeat it. `is_awaited` tells which of them still wait for it at its end: the markers of the
    /// others belong to tasks that followed theirs.
    async fn run_for(
        &mut self,
        command: OutputCommand,
        variables: &EnvVars,
        outputs: Vec<PathBuf>,
        is_awaited: impl Fn(&Path) -> bool,
    ) -> Result<(), CommandError> {
        let started = outputs.clone();
        let program = CommandSpec { command: command.command, variables: variables.clone() };
        // Before the command starts, so that a crash during it is known to the next process.
        self.update_marker(move || started.iter().for_each(|output| record_start(output))).await;
        let result = self.launcher.run(&program, command.timeout, &self.clock).await;
        let has_succeeded = result.is_ok();
        let ended: Vec<PathBuf> = outputs.into_iter().filter(|output| is_awaited(output)).collect();
        self.update_marker(move || ended.iter().for_each(|output| record_end(output, has_succeeded))).await;
        result
    }

    async fn update_marker(&mut self, update: impl FnOnce() + Send + 'static) {
        self.marker.spawn_blocking(update);
        self.finish().await;
    }

    /// Waits for the change of the marker that is in progress; for a stop, which has cancelled [`CommandRunner::run_for`].
    async fn finish(&mut self) {
        while self.marker.join_next().await.is_some() {}
    }
}

/// The command of an output when a task starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlierCommand {
    /// It has succeeded since the last change of the output, or there is none.
    Done,
    /// It has not succeeded since a change by an earlier task.
    Pending,
    /// [`MAX_INTERRUPTED`] tasks in a row ended while it ran. Such a command may end the agent, so it is not repeated.
    Abandoned,
}

/// Reads the marker of an output. Removes it if the output has no command any more, or its command is abandoned.
pub(crate) fn restore_command(output: &Path, has_command: bool) -> EarlierCommand {
    let interrupted = open_marker(output, OFlags::RDONLY).and_then(|marker| Ok(marker.metadata()?.len()));
    let command = match interrupted {
        _ if !has_command => EarlierCommand::Done,
        Err(_) => return EarlierCommand::Done,
        Ok(interrupted) if interrupted >= MAX_INTERRUPTED => EarlierCommand::Abandoned,
        Ok(_) => return EarlierCommand::Pending,
    };
    remove_marker(output);
    command
}

/// Number of tasks that a command may end.
const MAX_INTERRUPTED: u64 = 3;

/// Text for operators about an abandoned command.
pub(crate) const ABANDONED: &str = "the agent ended three times while the command ran, so that it is not repeated until the file changes; \
                                    a command must not end the agent";

/// Adds the marker if it is missing. A failure is ignored: without a marker, only a restart forgets the command.
pub(crate) fn add_marker(output: &Path) {
    let _ = open_marker(output, OFlags::WRONLY | OFlags::CREATE);
}

/// Counts a run of the command in the marker, until [`record_end`]. A failure is ignored as in [`add_marker`].
fn record_start(output: &Path) {
    let marker = open_marker(output, OFlags::WRONLY | OFlags::APPEND);
    // A command may reboot the machine: the count must be on the disk.
    let _ = marker.and_then(|mut marker| marker.write_all(b"x").and_then(|()| marker.sync_data()));
}

/// Removes the marker of a command that has succeeded; a failed one is repeated, whatever ended its earlier runs.
fn record_end(output: &Path, has_succeeded: bool) {
    if has_succeeded {
        return remove_marker(output);
    }
    let _ = open_marker(output, OFlags::WRONLY).and_then(|marker| marker.set_len(0));
}

/// Removes the marker. A failure is ignored: with the marker, the command runs once more after the next start.
fn remove_marker(output: &Path) {
    let _ = atomic_file::remove(&marker_path(output));
}

/// Opens the marker. Its length is the number of runs that have not ended.
fn open_marker(output: &Path, flags: OFlags) -> std::io::Result<File> {
    let (folder, name) = Dir::open_parent(&marker_path(output)).map_err(std::io::Error::other)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let marker = rustix::fs::openat(&folder, name.as_os_str(), flags, Mode::RUSR | Mode::WUSR)?;
    if flags.contains(OFlags::CREATE) {
        folder.sync()?;
    }
    Ok(File::from(marker))
}

/// `.NAME.command-pending` beside the output. Not longer than the name of its temporary file.
fn marker_path(output: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(".command-pending");
    output.with_file_name(name)
}
