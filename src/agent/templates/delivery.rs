//! Writes the file of a template, and keeps a marker beside it until its command has succeeded.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use keyward_machine::atomic_file::{self, Attributes, Outcome, ReplaceError};
use keyward_machine::command::CommandError;
use keyward_machine::secure_dir::Dir;
use keyward_telemetry::error_code::ErrorCode;
use rustix::fs::{Mode, OFlags};

use super::TemplateFile;

/// Writes the file, and creates its folder first if configured. If the file has a command, a change leaves its marker.
pub(super) fn write(file: &TemplateFile, bytes: &[u8]) -> Result<Outcome, DeliveryError> {
    if file.create_folders
        && let Some(folder) = file.destination.parent()
    {
        let created = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        created.map_err(|source| DeliveryError::Folder { folder: folder.to_owned(), source })?;
    }
    let attributes = Attributes { mode: file.mode, owner: file.owner, group: file.group };
    let replace = if file.backup { atomic_file::replace_with_backup } else { atomic_file::replace };
    if file.command.is_some() && !atomic_file::is_current(&file.destination, bytes, &attributes) {
        // Before the file: an agent that ends in between runs the command once too often, and not never.
        add_marker(&file.destination);
    }
    Ok(replace(&file.destination, bytes, &attributes)?)
}

/// The command of a file when a task starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierCommand {
    /// It has succeeded since the last change of the file, or there is none.
    Done,
    /// It has not succeeded since a change by an earlier task.
    Pending,
    /// [`MAX_INTERRUPTED`] tasks in a row ended while it ran. Such a command may end the agent, so it is not repeated.
    Abandoned,
}

/// Reads the marker. Removes it if the file has no command any more, or its command is abandoned.
pub(super) fn restore_command(file: &TemplateFile) -> EarlierCommand {
    let destination = &file.destination;
    let interrupted = open_marker(destination, OFlags::RDONLY).and_then(|marker| Ok(marker.metadata()?.len()));
    let command = match interrupted {
        _ if file.command.is_none() => EarlierCommand::Done,
        Err(_) => return EarlierCommand::Done,
        Ok(interrupted) if interrupted >= MAX_INTERRUPTED => EarlierCommand::Abandoned,
        Ok(_) => return EarlierCommand::Pending,
    };
    remove_marker(destination);
    command
}

/// Number of tasks that a command may end.
const MAX_INTERRUPTED: u64 = 3;

/// Adds the marker if it is missing. A failure is ignored: without a marker, only a restart forgets the command.
fn add_marker(destination: &Path) {
    let _ = open_marker(destination, OFlags::WRONLY | OFlags::CREATE);
}

/// Counts a run of the command in the marker, until [`record_command_end`]. A failure is ignored as in [`add_marker`].
pub(super) fn record_command_start(destination: &Path) {
    let marker = open_marker(destination, OFlags::WRONLY | OFlags::APPEND);
    // A command may reboot the machine: the count must be on the disk.
    let _ = marker.and_then(|mut marker| marker.write_all(b"x").and_then(|()| marker.sync_data()));
}

/// Removes the marker of a command that has succeeded; a failed one is repeated, whatever ended its earlier runs.
pub(super) fn record_command_end(destination: &Path, has_succeeded: bool) {
    if has_succeeded {
        return remove_marker(destination);
    }
    let _ = open_marker(destination, OFlags::WRONLY).and_then(|marker| marker.set_len(0));
}

/// Removes the marker. A failure is ignored: with the marker, the command runs once more after the next start.
fn remove_marker(destination: &Path) {
    let _ = atomic_file::remove(&marker_path(destination));
}

/// Opens the marker. Its length is the number of runs that have not ended.
fn open_marker(destination: &Path, flags: OFlags) -> std::io::Result<File> {
    let (folder, name) = Dir::open_parent(&marker_path(destination)).map_err(std::io::Error::other)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let marker = rustix::fs::openat(&folder, name.as_os_str(), flags, Mode::RUSR | Mode::WUSR)?;
    if flags.contains(OFlags::CREATE) {
        folder.sync()?;
    }
    Ok(File::from(marker))
}

/// `.NAME.command-pending` beside the file. Not longer than the name of its temporary file.
fn marker_path(destination: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(destination.file_name().unwrap_or_default());
    name.push(".command-pending");
    destination.with_file_name(name)
}

/// Reason why a rendered text was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("cannot create the folder {}", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error("the template's command failed")]
    Command(#[source] CommandError),
    #[error("an environment variable or credential cannot contain NUL")]
    Nul,
    #[error("the writing task panicked; this is a bug in keyward")]
    Broken,
}

impl DeliveryError {
    /// Returns the code for operators.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Folder { source, .. } => ErrorCode::from_write_error(source),
            Self::Replace(error) => error.into(),
            Self::Command(_) => ErrorCode::CommandFailed,
            Self::Nul => ErrorCode::TemplateFailed,
            Self::Broken => ErrorCode::OutputFailed,
        }
    }
}
