//! Checks of files and folders: rights of the agent's user, free space, kind of file.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use keyward_config::PathUse;
use keyward_machine::os;
use keyward_telemetry::error_code::ErrorCode;

use super::file_owners;
use super::remedies::DeniedPath;
use super::rights::{AccessVerdict, FileOperation, UserIdentity};
use crate::check_result::Problem;

/// User that paths are checked for.
#[derive(Debug)]
pub(crate) struct FileChecker<'a> {
    /// The agent's user.
    pub identity: &'a UserIdentity,
    /// Folders that the service manager makes for that user.
    pub created: &'a [PathBuf],
}

impl FileChecker<'_> {
    /// Returns what is wrong with a path of the configuration. A path that does not exist is the configuration's own error.
    pub(crate) fn problems(&self, key: &str, named: &Path, usage: PathUse) -> Vec<Problem> {
        let (path, operation) = match usage {
            PathUse::Read | PathUse::ReadSecret => (named.to_owned(), FileOperation::Read),
            PathUse::ReadFolder => (named.to_owned(), FileOperation::List),
            PathUse::Replace => (folder_of(named), FileOperation::WriteDirectory),
            PathUse::WriteFolder | PathUse::CreateFolder => (named.to_owned(), FileOperation::WriteDirectory),
        };
        let mut problems = Vec::new();
        if !self.created.contains(&path) {
            problems.extend(self.rights_problem(key, &path, operation));
        }
        if usage == PathUse::Replace {
            problems.extend(kind_problem(key, named));
        }
        if operation == FileOperation::WriteDirectory {
            problems.extend(space_problem(key, &path));
        }
        problems
    }

    /// Computes the rights on a path. For a missing path, the deepest existing folder decides.
    pub(crate) fn rights_problem(&self, key: &str, path: &Path, operation: FileOperation) -> Option<Problem> {
        let user = &self.identity.name;
        let (nodes, is_missing) = match file_owners::nodes(path) {
            Ok(nodes) => nodes,
            Err(error) if is_current(self.identity) => {
                let message = format!("{key}: user {user} cannot reach {}: {error}", path.display());
                return Some(Problem::new(ErrorCode::FileAccess, message));
            }
            Err(error) => {
                let message = format!("{key}: {}: {error}; run keyward doctor as root to check it", path.display());
                return Some(Problem::skipped(message));
            }
        };
        if is_missing && operation != FileOperation::WriteDirectory {
            return None;
        }
        match self.identity.check(&nodes, operation) {
            AccessVerdict::Allowed => None,
            AccessVerdict::Denied(node, _) => {
                let is_last = nodes.last() == Some(node);
                Some(self.denied(&DeniedPath { key, path, operation, node, is_last, is_missing }))
            }
            AccessVerdict::Unknown(node) => {
                let path_text = node.path.display();
                let message = format!("{key}: {path_text} has an access control list, which decides for user {user}");
                Some(Problem::skipped(format!("{message}; see getfacl {path_text}")))
            }
        }
    }

    fn denied(&self, denied: &DeniedPath<'_>) -> Problem {
        let DeniedPath { key, path, operation, node, .. } = *denied;
        let user = &self.identity.name;
        let path_text = path.display();
        let verb = match operation {
            FileOperation::Read => "read",
            FileOperation::List => "list",
            FileOperation::WriteDirectory => "write in",
            FileOperation::Execute => "execute",
        };
        let owner = os::user_entry(&node.uid.to_string()).ok().flatten().map_or(node.uid.to_string(), |user| user.0);
        let group = os::group_name(node.gid).unwrap_or_else(|| node.gid.to_string());
        let denied_by = node.path.display();
        let message = format!(
            "{key}: user {user} may not {verb} {path_text}: {denied_by} has mode {:04o}, {owner}:{group}",
            node.mode
        );
        Problem::new(ErrorCode::FileAccess, message).with_remedy(denied.remedy(user))
    }
}

/// True if this process has the identity, so that what the system refuses it is refused to the agent.
fn is_current(identity: &UserIdentity) -> bool {
    identity.uid == rustix::process::geteuid().as_raw()
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// An output must be a regular file, or not there.
fn kind_problem(key: &str, path: &Path) -> Option<Problem> {
    let metadata = path.symlink_metadata().ok()?;
    // A socket's own path, and a folder, which the configuration reports.
    if metadata.is_file() || metadata.is_dir() || metadata.file_type().is_socket() {
        return None;
    }
    let (kind, fix) = match metadata.file_type() {
        kind if kind.is_symlink() => ("a symlink", format!("rm {}", path.display())),
        kind if kind.is_fifo() => ("a FIFO", format!("rm {}", path.display())),
        // Without /dev/null or a disk's device, the machine does not work.
        _ => ("a device", "name a regular file".to_owned()),
    };
    let message = format!("{key}: {} is {kind}, which the agent does not replace", path.display());
    Some(Problem::new(ErrorCode::OutputNotRegular, message).with_remedy(fix))
}

/// Below this, the disk counts as full for token files.
const MIN_FREE_SPACE: u64 = 64 * 1024;

fn space_problem(key: &str, path: &Path) -> Option<Problem> {
    let existing = path.ancestors().find(|path| path.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    let path_text = path.display();
    if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        let message = format!("{key}: the file system of {path_text} is read-only");
        return Some(Problem::new(ErrorCode::OutputFolder, message).with_remedy(format!("findmnt -T {path_text}")));
    }
    // Some file systems tell no sizes.
    let is_full = disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < MIN_FREE_SPACE;
    let no_files = disk.f_files > 0 && disk.f_favail == 0;
    (is_full || no_files).then(|| {
        let resource = if is_full { "space" } else { "files" };
        let message = format!("{key}: the file system of {path_text} has no {resource} left");
        Problem::new(ErrorCode::OutputFailed, message).with_remedy(format!("df -h {path_text}; df -i {path_text}"))
    })
}
