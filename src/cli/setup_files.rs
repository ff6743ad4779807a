//! Files that `init` and `migrate` write for a machine: none is overwritten unasked.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use keyward_config::systemd::UnitNeeds;
use keyward_machine::atomic_file::{self, Attributes};
use keyward_machine::os;
use keyward_machine::secret_string::SecretString;

use super::{Exit, print_error};

/// A file for a machine.
#[derive(Debug)]
pub(super) struct SetupFile {
    /// Path on the machine.
    pub(super) path: PathBuf,
    /// The content.
    pub(super) content: Content,
    /// Owner and mode.
    pub(super) access: SetupFileAccess,
}

/// Content of a [`SetupFile`].
#[derive(Debug)]
pub(super) enum Content {
    Text(String),
    /// A new key. An existing one is kept: data encrypted with it could not be read otherwise.
    Key(SecretString),
}

/// Owner and mode of a [`SetupFile`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SetupFileAccess {
    /// Root writes, everybody reads.
    Everybody,
    /// Root writes, the service reads: a configuration that the service could change would be no bound for it.
    ReadByService,
    /// Root writes, a group reads, of which the service is a member.
    ReadByGroup(String),
    /// Only the service reads and writes.
    Service,
}

/// User and group of the packaged unit.
const SERVICE_ACCOUNT: &str = "keyward";

impl SetupFileAccess {
    pub(super) const fn mode(&self) -> u32 {
        match self {
            Self::Everybody => 0o644,
            Self::ReadByService | Self::ReadByGroup(_) => 0o640,
            Self::Service => 0o600,
        }
    }

    /// The group that reads the file, if it is another one than the service's.
    pub(super) fn reading_group(&self) -> Option<&str> {
        match self {
            Self::ReadByGroup(group) => Some(group),
            Self::Everybody | Self::ReadByService | Self::Service => None,
        }
    }

    /// Owner and group, if they are not those of root.
    fn owner(&self) -> Option<(&str, &str)> {
        match self {
            Self::Everybody => None,
            Self::ReadByService => Some(("root", SERVICE_ACCOUNT)),
            Self::ReadByGroup(group) => Some(("root", group)),
            Self::Service => Some((SERVICE_ACCOUNT, SERVICE_ACCOUNT)),
        }
    }

    /// Ids of owner and group, if this user may give files away and both exist.
    fn ids(&self) -> std::io::Result<Option<(u32, u32)>> {
        let Some((owner, group)) = self.owner().filter(|_| rustix::process::geteuid().is_root()) else {
            return Ok(None);
        };
        Ok(os::user_id(owner)?.zip(os::group_id(group)?))
    }
}

/// Handling of files that exist.
#[derive(Debug, Clone, Copy)]
pub(super) enum Existing {
    Replace,
    /// Write nothing, with this advice.
    Keep(&'static str),
}

/// Place of the files.
#[derive(Debug, Clone)]
pub(super) enum Destination {
    /// Below this folder, at their paths.
    Root(PathBuf),
    /// In this folder, by their names.
    Folder(PathBuf),
}

impl Destination {
    fn resolve(&self, path: &Path) -> PathBuf {
        match self {
            Self::Root(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            Self::Folder(folder) => folder.join(path.file_name().unwrap_or_default()),
        }
    }
}

/// Writes the files, and prints their paths with `print_line`.
///
/// # Errors
/// A file exists and is kept, of which `Err` in `Ok` is the exit code; or a file cannot be written.
pub(super) fn write(
    files: &[SetupFile],
    destination: &Destination,
    existing: Existing,
    print_line: fn(&str),
) -> anyhow::Result<Result<(), Exit>> {
    if let Existing::Keep(advice) = existing
        && let Err(exit) = require_free(files, destination, advice)
    {
        return Ok(Err(exit));
    }
    let targets: BTreeMap<PathBuf, &SetupFile> =
        files.iter().map(|file| (destination.resolve(&file.path), file)).collect();
    for (path, file) in targets {
        write_one(&path, file, print_line)?;
    }
    Ok(Ok(()))
}

/// Checks that none of the files would replace another. A key is kept where one exists.
///
/// # Errors
/// Some file exists; it is printed with the advice.
pub(super) fn require_free(files: &[SetupFile], destination: &Destination, advice: &str) -> Result<(), Exit> {
    let texts = files.iter().filter(|file| matches!(file.content, Content::Text(_)));
    let existing: BTreeSet<PathBuf> =
        texts.map(|file| destination.resolve(&file.path)).filter(|path| path.symlink_metadata().is_ok()).collect();
    for path in &existing {
        print_error(&format!("{} exists already; move it away, or {advice}", path.display()));
    }
    if existing.is_empty() { Ok(()) } else { Err(Exit::AlreadyExists) }
}

fn write_one(path: &Path, file: &SetupFile, print_line: fn(&str)) -> anyhow::Result<()> {
    let ids = file.access.ids().context("cannot look up the service's user")?;
    make_folder(path.parent().unwrap_or(Path::new("/")), file)?;
    let attributes = Attributes { mode: file.access.mode(), owner: ids.map(|ids| ids.0), group: ids.map(|ids| ids.1) };
    let path_text = path.display();
    match &file.content {
        Content::Text(text) => {
            atomic_file::replace(path, text.as_bytes(), &attributes)?;
            print_line(&format!("wrote {path_text}"));
        }
        Content::Key(key) => {
            let line = format!("{}\n", key.expose_secret());
            let created = atomic_file::create(path, line.as_bytes(), &attributes)?;
            print_line(&if created {
                format!("wrote {path_text}")
            } else {
                format!("kept {path_text}, which exists already")
            });
        }
    }
    if let (Some((owner, group)), None) = (file.access.owner(), ids) {
        print_line(&format!("  then, on the machine: sudo chown {owner}:{group} {}", file.path.display()));
    }
    Ok(())
}

/// Makes the folder of a file, if it is missing. One for the service is closed to other users, as the package makes it.
fn make_folder(folder: &Path, file: &SetupFile) -> anyhow::Result<()> {
    let failed = || format!("cannot create the folder {}", folder.display());
    if folder.is_dir() {
        return Ok(());
    }
    let is_open = file.access == SetupFileAccess::Everybody;
    let mut builder = std::fs::DirBuilder::new();
    if let Some(above) = folder.parent() {
        builder.recursive(true).mode(0o755).create(above).with_context(failed)?;
    }
    builder.recursive(false).mode(if is_open { 0o755 } else { 0o750 }).create(folder).with_context(failed)?;
    if let Some((_, group)) = SetupFileAccess::ReadByService.ids()?.filter(|_| !is_open) {
        std::os::unix::fs::chown(folder, None, Some(group)).with_context(failed)?;
    }
    Ok(())
}

/// Names the files for the unit that an earlier run has written and that grant what is not needed any more.
pub(super) fn stale_unit_files(files: &[SetupFile], destination: &Destination) -> Vec<PathBuf> {
    let all = [
        Path::new(UnitNeeds::DROP_IN_FOLDER).join(UnitNeeds::DROP_IN_NAME),
        Path::new(UnitNeeds::POLKIT_FOLDER).join(UnitNeeds::POLKIT_NAME),
    ];
    let stale =
        all.iter().filter(|path| files.iter().all(|file| file.path != **path)).map(|path| destination.resolve(path));
    stale.filter(|path| path.exists()).collect()
}

/// The drop-in and the polkit rule that a configuration needs, at their places on the machine.
pub(super) fn unit_files(needs: &UnitNeeds) -> Vec<SetupFile> {
    let file = |folder: &str, name: &str, text: String| SetupFile {
        path: Path::new(folder).join(name),
        content: Content::Text(text),
        access: SetupFileAccess::Everybody,
    };
    let drop_in = needs.drop_in().map(|text| file(UnitNeeds::DROP_IN_FOLDER, UnitNeeds::DROP_IN_NAME, text));
    let rule = needs.polkit_rule().map(|text| file(UnitNeeds::POLKIT_FOLDER, UnitNeeds::POLKIT_NAME, text));
    drop_in.into_iter().chain(rule).collect()
}
