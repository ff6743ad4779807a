//! Writes the file of a template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use keyward_machine::atomic_file::{self, Attributes, Outcome, ReplaceError};
use keyward_machine::command::CommandError;
use keyward_machine::os;
use keyward_machine::secure_dir::{Dir, DirError, Missing};
use keyward_telemetry::error_code::ErrorCode;

use super::evaluation::WrittenFile;
use super::{Encoding, TemplateFile};
use crate::output_command::add_marker;

/// Writes the file, after the others that its template writes, and creates their folders first if configured. If the file has
/// a command, a change leaves its marker.
///
/// Beside an error, the outcome tells if one of the files may have changed before it.
pub(super) fn write(
    file: &TemplateFile,
    text: &str,
    others: &BTreeMap<PathBuf, WrittenFile>,
    write_folders: &[PathBuf],
) -> (Outcome, Result<(), DeliveryError>) {
    let mut outcome = Outcome::Unchanged;
    let result = write_all(file, text, others, write_folders, &mut outcome);
    (outcome, result)
}

fn write_all(
    file: &TemplateFile,
    text: &str,
    others: &BTreeMap<PathBuf, WrittenFile>,
    write_folders: &[PathBuf],
    outcome: &mut Outcome,
) -> Result<(), DeliveryError> {
    let decoded;
    let bytes = match file.encoding {
        Encoding::Text => text.as_bytes(),
        Encoding::Base64 => {
            decoded = decode(text)?;
            &decoded
        }
    };
    for (path, other) in others {
        if *path == file.destination {
            return Err(DeliveryError::OwnDestination);
        }
        let attributes = other.attributes(path)?;
        let folder = open_written_folder(file, path, write_folders)?;
        replace(file, &folder, path, other.content.as_bytes(), &attributes, outcome)?;
    }
    let attributes = Attributes { mode: file.mode, owner: file.owner, group: file.group };
    let folder = Dir::open_or_create(Dir::split(&file.destination)?.0, file.missing_folders())?;
    replace(file, &folder, &file.destination, bytes, &attributes, outcome)
}

/// Opens the folder of a file of `writeToFile`. Below the innermost of the write folders that holds it, no symlink is followed:
/// the file would be outside of what the configuration allows.
fn open_written_folder(file: &TemplateFile, path: &Path, write_folders: &[PathBuf]) -> Result<Dir, DirError> {
    let (parent, _) = Dir::split(path)?;
    let bases = write_folders.iter().filter(|folder| parent.starts_with(folder));
    let base = bases.max_by_key(|folder| folder.components().count());
    let base = base.ok_or_else(|| DirError::NoFile { path: path.to_owned() })?;
    Dir::open_below(base, parent, file.missing_folders())
}

/// Replaces one file of a template in its folder.
fn replace(
    file: &TemplateFile,
    folder: &Dir,
    path: &Path,
    bytes: &[u8],
    attributes: &Attributes,
    outcome: &mut Outcome,
) -> Result<(), DeliveryError> {
    let replace = if file.backup { atomic_file::replace_with_backup_in } else { atomic_file::replace_in };
    if file.command.is_some() && !atomic_file::is_current_in(folder, path, bytes, attributes) {
        // Before the file: an agent that ends in between runs the command once too often, and not never.
        add_marker(&file.destination);
        // Also before it: where only the sync of the folder fails, the new file is there.
        *outcome = Outcome::Written;
    }
    if replace(folder, path, bytes, attributes)? == Outcome::Written {
        *outcome = Outcome::Written;
    }
    Ok(())
}

impl TemplateFile {
    const fn missing_folders(&self) -> Missing {
        if self.create_folders { Missing::Create } else { Missing::Refuse }
    }
}

/// Decodes base64 with or without padding and line breaks.
fn decode(text: &str) -> Result<Vec<u8>, DeliveryError> {
    let coded: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(&coded).or_else(|_| STANDARD_NO_PAD.decode(&coded));
    decoded.map_err(|_| DeliveryError::Encoding)
}

impl WrittenFile {
    fn attributes(&self, path: &Path) -> Result<Attributes, DeliveryError> {
        let find = |name: &Option<String>, kind: &'static str, find: fn(&str) -> std::io::Result<Option<u32>>| {
            let Some(name) = name else { return Ok(None) };
            let id = find(name).ok().flatten();
            id.map(Some)
                .ok_or_else(|| DeliveryError::Account { missing: describe_missing(kind, name), path: path.to_owned() })
        };
        let owner = find(&self.owner, "user", os::user_id)?;
        let group = find(&self.group, "group", os::group_id)?;
        Ok(Attributes { mode: self.mode, owner, group })
    }
}

/// Describes an account that does not exist. Anything but a name is left out: it may be a secret, by arguments in a wrong order.
fn describe_missing(kind: &str, name: &str) -> String {
    let mut characters = name.chars();
    let is_first = |first: char| first.is_ascii_lowercase() || first == '_';
    let is_inner = |inner: char| is_first(inner) || inner.is_ascii_digit() || inner == '-';
    // 32 characters, as useradd(8) has it.
    let is_name = name.len() <= 32 && characters.next().is_some_and(is_first) && characters.all(is_inner);
    if is_name { format!("there is no {kind} {name}") } else { format!("the {kind} does not exist") }
}

/// Reason why a rendered text was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error("the template's command failed")]
    Command(#[source] Arc<CommandError>),
    #[error("the rendered text is not base64, which encoding = \"base64\" of the template needs")]
    Encoding,
    #[error("writeToFile names the template's own destination; print the text instead")]
    OwnDestination,
    #[error("writeToFile {}: {missing}", path.display())]
    Account { missing: String, path: PathBuf },
    #[error("an environment variable or credential cannot contain NUL")]
    Nul,
    #[error("the writing task panicked; this is a bug in keyward")]
    Broken,
}

impl From<DirError> for DeliveryError {
    fn from(error: DirError) -> Self {
        Self::Replace(error.into())
    }
}

impl DeliveryError {
    /// Returns the code for operators.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Replace(error) => error.into(),
            Self::Command(_) => ErrorCode::CommandFailed,
            Self::Nul | Self::Encoding | Self::OwnDestination | Self::Account { .. } => ErrorCode::TemplateFailed,
            Self::Broken => ErrorCode::OutputFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
    use std::slice;
    use std::time::Duration;

    use super::*;
    use crate::output_watch::OnMissing;

    fn write(
        file: &TemplateFile,
        text: &str,
        others: &BTreeMap<PathBuf, WrittenFile>,
        write_folders: &[PathBuf],
    ) -> Result<Outcome, DeliveryError> {
        let (outcome, result) = super::write(file, text, others, write_folders);
        result.map(|()| outcome)
    }

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
            command_debounce: Duration::ZERO,
        }
    }

    fn written(text: &str) -> WrittenFile {
        WrittenFile { mode: 0o440, owner: None, group: None, content: text.to_owned() }
    }

    #[test]
    fn a_binary_file_is_rendered_as_base64() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path().join("keystore"));
        let folders = [];
        for text in ["/u3+7QAA\nAAI=\n", "/u3+7QAAAAI"] {
            write(&file, text, &BTreeMap::new(), &folders).unwrap();
            assert_eq!(std::fs::read(&file.destination).unwrap(), [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
        }
        let error = write(&file, "canary!", &BTreeMap::new(), &folders).unwrap_err();
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
        let folders = [folder.path().to_owned()];
        let other = folder.path().join("sub/other");
        let others = BTreeMap::from([(other.clone(), written("x"))]);
        assert!(matches!(write(&file, "", &others, &folders), Err(DeliveryError::Replace(_))));
        assert!(!file.destination.exists(), "it is written last");
        file.create_folders = true;
        assert_eq!(write(&file, "", &others, &folders).unwrap(), Outcome::Written);
        assert_eq!(std::fs::metadata(&other).unwrap().permissions().mode() & 0o7777, 0o440);
        assert_eq!(write(&file, "", &others, &folders).unwrap(), Outcome::Unchanged);
        std::fs::remove_file(&other).unwrap();
        assert_eq!(write(&file, "", &others, &folders).unwrap(), Outcome::Written);
    }

    #[test]
    fn a_failure_tells_if_a_file_may_have_changed_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path().join("own"));
        let folders = [folder.path().to_owned()];
        let missing = BTreeMap::from([(folder.path().join("sub/a"), written("x"))]);
        let (outcome, result) = super::write(&file, "", &missing, &folders);
        assert!(outcome == Outcome::Unchanged && result.is_err(), "{outcome:?} {result:?}");
        std::fs::create_dir(&file.destination).unwrap();
        let others = BTreeMap::from([(folder.path().join("a"), written("x"))]);
        for expected in [Outcome::Written, Outcome::Unchanged] {
            let (outcome, result) = super::write(&file, "", &others, &folders);
            assert!(outcome == expected && result.is_err(), "{outcome:?} {result:?}");
        }
    }

    #[test]
    fn no_folder_is_created_behind_a_symlink_that_others_could_have_placed() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let (owned, outside) = (base.join("owned"), base.join("outside"));
        std::fs::create_dir(&owned).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, owned.join("link")).unwrap();
        if rustix::process::geteuid().is_root() {
            lchown(&owned, Some(4711), None).unwrap();
            lchown(owned.join("link"), Some(4711), None).unwrap();
        }
        let mut file = file(owned.join("link/new/folder/file"));
        file.create_folders = true;
        let error = write(&file, "", &BTreeMap::new(), &[]).unwrap_err();
        assert!(error.to_string().contains("leads through the symlink link"), "{error}");
        let others = BTreeMap::from([(file.destination.clone(), written("x"))]);
        file.destination = base.join("own");
        let error = write(&file, "", &others, slice::from_ref(&owned)).unwrap_err();
        assert!(error.to_string().contains("leads through a symlink below"), "{error}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        // A plain folder of others is no way out of it.
        file.destination = owned.join("new/folder/file");
        assert_eq!(write(&file, "", &BTreeMap::new(), &[]).unwrap(), Outcome::Written);
    }

    #[test]
    fn a_symlink_below_a_write_folder_is_not_followed_whoever_made_it() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let (folder, outside) = (base.join("wf"), base.join("outside"));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink("../outside", folder.join("canary")).unwrap();
        symlink("inner", folder.join("same")).unwrap();
        let mut file = file(base.join("own"));
        for create_folders in [false, true] {
            file.create_folders = create_folders;
            for path in ["canary/x", "canary/new/x", "same/x"] {
                let others = BTreeMap::from([(folder.join(path), written("x"))]);
                let error = write(&file, "", &others, slice::from_ref(&folder)).unwrap_err();
                let text = error.to_string();
                assert!(
                    text.contains(&format!("leads through a symlink below {}", folder.display())),
                    "{path}: {text}"
                );
                assert!(!text.contains("canary"), "{path}: {text}");
                assert_eq!(error.code(), ErrorCode::OutputFolder);
            }
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!folder.join("inner/x").exists());
        // The folder that a symlink leads to may be one of the folders itself.
        let others = BTreeMap::from([(outside.join("x"), written("x"))]);
        assert_eq!(write(&file, "", &others, &[folder, base.join("outside")]).unwrap(), Outcome::Written);
    }

    #[test]
    fn an_account_is_named_only_if_it_has_the_form_of_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path().join("own"));
        let path = folder.path().join("other");
        let check = |owner: Option<&str>, group: Option<&str>, expected: &str| {
            let account = |name: Option<&str>| name.map(str::to_owned);
            let written = WrittenFile { owner: account(owner), group: account(group), ..written("x") };
            let others = BTreeMap::from([(path.clone(), written)]);
            let error = write(&file, "", &others, &[folder.path().to_owned()]).unwrap_err();
            assert_eq!(error.to_string(), format!("writeToFile {}: {expected}", path.display()));
        };
        check(Some("nobody-has_this-name1"), None, "there is no user nobody-has_this-name1");
        check(None, Some("nobody-has-this"), "there is no group nobody-has-this");
        for canary in ["s.Canary", "canary secret", "1canary", "canary\n", "-canary", &"c".repeat(33)] {
            check(Some(canary), None, "the user does not exist");
            check(None, Some(canary), "the group does not exist");
        }
    }
}
