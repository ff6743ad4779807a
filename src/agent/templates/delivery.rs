//! Writes the file of a template, and keeps a marker beside it until its command has succeeded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use keyward_machine::atomic_file::{self, Attributes, Outcome, ReplaceError};
use keyward_machine::command::CommandError;
use keyward_machine::os;
use keyward_machine::secure_dir::Dir;
use keyward_telemetry::error_code::ErrorCode;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use super::evaluation::WrittenFile;
use super::{Encoding, TemplateFile};

/// Writes the file, after the others that its template writes, and creates their folders first if configured. If the file has
/// a command, a change leaves its marker.
pub(super) fn write(
    file: &TemplateFile,
    text: &str,
    others: &BTreeMap<PathBuf, WrittenFile>,
) -> Result<Outcome, DeliveryError> {
    let decoded;
    let bytes = match file.encoding {
        Encoding::Text => text.as_bytes(),
        Encoding::Base64 => {
            decoded = decode(text)?;
            &decoded
        }
    };
    let mut outcome = Outcome::Unchanged;
    for (path, other) in others {
        if *path == file.destination {
            return Err(DeliveryError::OwnDestination);
        }
        let attributes = other.attributes(path)?;
        if replace(file, path, other.content.as_bytes(), &attributes)? == Outcome::Written {
            outcome = Outcome::Written;
        }
    }
    let attributes = Attributes { mode: file.mode, owner: file.owner, group: file.group };
    match replace(file, &file.destination, bytes, &attributes)? {
        Outcome::Written => Ok(Outcome::Written),
        Outcome::Unchanged => Ok(outcome),
    }
}

/// Replaces one file of a template.
fn replace(file: &TemplateFile, path: &Path, bytes: &[u8], attributes: &Attributes) -> Result<Outcome, DeliveryError> {
    if file.create_folders
        && let Some(folder) = path.parent()
    {
        let created = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        created.map_err(|source| DeliveryError::Folder { folder: folder.to_owned(), source })?;
    }
    let replace = if file.backup { atomic_file::replace_with_backup } else { atomic_file::replace };
    if file.command.is_some() && !atomic_file::is_current(path, bytes, attributes) {
        // Before the file: an agent that ends in between runs the command once too often, and not never.
        add_marker(&file.destination);
    }
    Ok(replace(path, bytes, attributes)?)
}

/// Decodes base64 with or without padding and line breaks.
fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, DeliveryError> {
    let mut coded = Zeroizing::new(Vec::with_capacity(text.len()));
    coded.extend(text.bytes().filter(|byte| !byte.is_ascii_whitespace()));
    let decoded = STANDARD.decode(&*coded).or_else(|_| STANDARD_NO_PAD.decode(&*coded));
    decoded.map(Zeroizing::new).map_err(|_| DeliveryError::Encoding)
}

impl WrittenFile {
    fn attributes(&self, path: &Path) -> Result<Attributes, DeliveryError> {
        let find = |name: &Option<String>, kind: &'static str, find: fn(&str) -> std::io::Result<Option<u32>>| {
            let Some(name) = name else { return Ok(None) };
            let id = find(name).ok().flatten();
            id.map(Some).ok_or_else(|| DeliveryError::Account { kind, name: name.clone(), path: path.to_owned() })
        };
        let owner = find(&self.owner, "user", os::user_id)?;
        let group = find(&self.group, "group", os::group_id)?;
        Ok(Attributes { mode: self.mode, owner, group })
    }
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
    #[error("the rendered text is not base64, which encoding = \"base64\" of the template needs")]
    Encoding,
    #[error("writeToFile names the template's own destination; print the text instead")]
    OwnDestination,
    #[error("writeToFile {}: there is no {kind} {name}", path.display())]
    Account { kind: &'static str, name: String, path: PathBuf },
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
            Self::Nul | Self::Encoding | Self::OwnDestination | Self::Account { .. } => ErrorCode::TemplateFailed,
            Self::Broken => ErrorCode::OutputFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::output_watch::OnMissing;

    fn file(destination: PathBuf) -> TemplateFile {
        TemplateFile {
            destination,
            mode: 0o600,
            owner: None,
            group: None,
            create_folders: false,
            encoding: Encoding::Base64,
            backup: false,
            on_missing: OnMissing::Restore,
            command: None,
        }
    }

    #[test]
    fn a_binary_file_is_rendered_as_base64() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path().join("keystore"));
        for text in ["/u3+7QAA\nAAI=\n", "/u3+7QAAAAI"] {
            write(&file, text, &BTreeMap::new()).unwrap();
            assert_eq!(std::fs::read(&file.destination).unwrap(), [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
        }
        let error = write(&file, "canary!", &BTreeMap::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the rendered text is not base64, which encoding = \"base64\" of the template needs"
        );
        assert_eq!(std::fs::read(&file.destination).unwrap().len(), 8, "the file stays");
    }

    #[test]
    fn the_files_beside_it_need_their_folder_and_have_their_mode() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(folder.path().join("own"));
        let other = folder.path().join("sub/other");
        let written = WrittenFile { mode: 0o440, owner: None, group: None, content: "x".to_owned().into() };
        let others = BTreeMap::from([(other.clone(), written)]);
        assert!(matches!(write(&file, "", &others), Err(DeliveryError::Replace(_))));
        assert!(!file.destination.exists(), "it is written last");
        file.create_folders = true;
        assert_eq!(write(&file, "", &others).unwrap(), Outcome::Written);
        assert_eq!(std::fs::metadata(&other).unwrap().permissions().mode() & 0o7777, 0o440);
        assert_eq!(write(&file, "", &others).unwrap(), Outcome::Unchanged);
        std::fs::remove_file(&other).unwrap();
        assert_eq!(write(&file, "", &others).unwrap(), Outcome::Written);
    }
}
