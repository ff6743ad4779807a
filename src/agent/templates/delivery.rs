//! Writes the file of a template, and keeps a marker beside it until its command has succeeded.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use super::TemplateFile;
use crate::atomic_file::{self, Attributes, Outcome, ReplaceError};
use crate::command::CommandError;
use crate::error_code::ErrorCode;
use crate::secure_dir::write_error_code;

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
    let has_command = file.command.is_some();
    // Before the file: an agent that ends in between runs the command once too often, and not never.
    let is_marked = has_command && !has_bytes(&file.destination, bytes) && add_marker(&file.destination);
    let outcome = replace(&file.destination, bytes, &attributes)?;
    match outcome {
        // Only its mode or owner has changed.
        Outcome::Written if has_command && !is_marked => {
            add_marker(&file.destination);
        }
        Outcome::Unchanged if is_marked => remove_marker(&file.destination),
        Outcome::Written | Outcome::Unchanged => {}
    }
    Ok(outcome)
}

/// Returns true if the file has exactly these bytes; false if it cannot be read.
fn has_bytes(path: &Path, bytes: &[u8]) -> bool {
    // NONBLOCK: the path may name a FIFO.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    // Allocated once: a buffer that grows leaves copies of a secret in freed memory.
    let mut current = Zeroizing::new(Vec::with_capacity(bytes.len() + 32));
    let read = File::from(file).take(bytes.len() as u64 + 1).read_to_end(&mut current);
    read.is_ok() && current[..] == *bytes
}

/// Returns true if the file's command has not succeeded since a change by an earlier task. Removes the marker if the file has no
/// command any more.
pub(super) fn restore_command_pending(file: &TemplateFile) -> bool {
    if file.command.is_none() {
        remove_marker(&file.destination);
        return false;
    }
    marker_path(&file.destination).symlink_metadata().is_ok()
}

/// Adds the marker. Returns true if it was not there. A failure is ignored: without a marker, only a restart forgets the command.
fn add_marker(destination: &Path) -> bool {
    let attributes = Attributes { mode: 0o600, owner: None, group: None };
    let added = atomic_file::replace(&marker_path(destination), b"", &attributes);
    added.is_ok_and(|outcome| outcome == Outcome::Written)
}

/// Removes the marker. A failure is ignored: with the marker, the command runs once more after the next start.
pub(super) fn remove_marker(destination: &Path) {
    let _ = atomic_file::remove(&marker_path(destination));
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
            Self::Folder { source, .. } => write_error_code(source),
            Self::Replace(error) => error.code(),
            Self::Command(_) => ErrorCode::CommandFailed,
            Self::Nul => ErrorCode::TemplateFailed,
            Self::Broken => ErrorCode::OutputFailed,
        }
    }
}
