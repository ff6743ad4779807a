//! Checks of files and folders: rights of the agent's user, sandbox, free space, kind of file.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::access;
use super::path_rules::{PathAccess, PathRules};
use super::rights::{Identity, Operation, PathNode, Verdict};
use crate::app::check_result::Problem;
use crate::config::{NamedPath, PathUse};
use crate::error_code::ErrorCode;
use crate::os;

/// User and sandbox that paths are judged by.
#[derive(Debug)]
pub(crate) struct FileJudge<'a> {
    /// The agent's user.
    pub identity: &'a Identity,
    /// Paths of the unit's sandbox; `None` without a unit.
    pub rules: Option<&'a PathRules>,
    /// Name of the unit, for advice.
    pub unit: &'a str,
}

impl FileJudge<'_> {
    /// Returns what is wrong with a path of the configuration. A path that does not exist is the configuration's own error.
    pub(crate) fn problems(&self, named: &NamedPath) -> Vec<Problem> {
        let (path, operation) = match named.usage {
            PathUse::Read | PathUse::ReadSecret => (named.path.clone(), Operation::Read),
            PathUse::ReadFolder => (named.path.clone(), Operation::List),
            PathUse::Replace => (folder_of(&named.path), Operation::WriteIn),
            PathUse::WriteFolder | PathUse::CreateFolder => (named.path.clone(), Operation::WriteIn),
        };
        let key = &named.key;
        let mut problems: Vec<Problem> = self.sandbox_problem(key, &path, operation).into_iter().collect();
        if !self.rules.is_some_and(|rules| rules.is_own_folder(&path)) {
            problems.extend(self.rights_problem(key, &path, operation));
        }
        if named.usage == PathUse::Replace {
            problems.extend(kind_problem(key, &named.path));
        }
        if operation == Operation::WriteIn {
            problems.extend(space_problem(key, &path));
        }
        problems
    }

    fn sandbox_problem(&self, key: &str, path: &Path, operation: Operation) -> Option<Problem> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let rule = self.rules?.rule(&real)?;
        let (shown, setting, unit) = (path.display(), &rule.setting, self.unit);
        let edit = format!("systemctl edit {unit}, and add under [Service]:");
        match (rule.access, operation) {
            (PathAccess::Open, _) | (PathAccess::ReadOnly, Operation::Read | Operation::List | Operation::Execute) => {
                None
            }
            (PathAccess::ReadOnly, Operation::WriteIn) => {
                let found = format!("{key}: {setting} of {unit} makes {shown} read-only");
                Some(Problem::new(ErrorCode::SandboxReadOnly, found).fix(format!("{edit} ReadWritePaths={shown}")))
            }
            (PathAccess::Private, Operation::WriteIn) => {
                let found = format!("{key}: {setting} of {unit} gives the agent a {shown} that no other process sees");
                // The service manager empties /run/keyward when the service stops.
                let is_kept = matches!(key, "agent.state_dir" | "acl.data_dir") || key.starts_with("audit.");
                let folder = if is_kept { "/var/lib/keyward" } else { "/run/keyward" };
                Some(Problem::new(ErrorCode::SandboxHidden, found).fix(format!("name a path below {folder}")))
            }
            (PathAccess::Private | PathAccess::Hidden | PathAccess::Inaccessible, _) => {
                let found = format!("{key}: {setting} of {unit} hides {shown} from the agent");
                let tmpfs = if rule.setting == "ProtectHome=yes" { "\nProtectHome=tmpfs\n" } else { " " };
                let bind = if operation == Operation::WriteIn { "BindPaths" } else { "BindReadOnlyPaths" };
                Some(Problem::new(ErrorCode::SandboxHidden, found).fix(format!("{edit}{tmpfs}{bind}={shown}")))
            }
        }
    }

    /// Computes the rights on a path. What does not exist yet is judged by the deepest folder that does.
    pub(crate) fn rights_problem(&self, key: &str, path: &Path, operation: Operation) -> Option<Problem> {
        let user = &self.identity.name;
        let (nodes, is_missing) = match access::nodes(path) {
            Ok(found) => found,
            Err(error) if is_current(self.identity) => {
                let found = format!("{key}: user {user} cannot reach {}: {error}", path.display());
                return Some(Problem::new(ErrorCode::FileAccess, found));
            }
            Err(error) => {
                let found = format!("{key}: {}: {error}; run keyward doctor as root to judge it", path.display());
                return Some(Problem::skipped(found));
            }
        };
        if is_missing && operation != Operation::WriteIn {
            return None;
        }
        match self.identity.may(&nodes, operation) {
            Verdict::Allowed => None,
            Verdict::Denied(node, _) => Some(self.denied(key, path, operation, node)),
            Verdict::Unknown(node) => {
                let shown = node.path.display();
                let found = format!("{key}: {shown} has an access control list, which decides for user {user}");
                Some(Problem::skipped(format!("{found}; see getfacl {shown}")))
            }
        }
    }

    fn denied(&self, key: &str, path: &Path, operation: Operation, node: &PathNode) -> Problem {
        let (user, shown) = (&self.identity.name, path.display());
        let verb = match operation {
            Operation::Read => "read",
            Operation::List => "list",
            Operation::WriteIn => "write in",
            Operation::Execute => "execute",
        };
        let owner = os::user_entry(&node.uid.to_string()).ok().flatten().map_or(node.uid.to_string(), |user| user.0);
        let group = os::group_name(node.gid).unwrap_or_else(|| node.gid.to_string());
        let place = node.path.display();
        let found =
            format!("{key}: user {user} may not {verb} {shown}: {place} has mode {:04o}, {owner}:{group}", node.mode);
        Problem::new(ErrorCode::FileAccess, found).fix(self.advice(path, operation, node))
    }

    /// The narrowest command that lets the user in.
    fn advice(&self, path: &Path, operation: Operation, node: &PathNode) -> String {
        let (user, place) = (&self.identity.name, node.path.display());
        if node.path != path && node.is_folder && operation != Operation::WriteIn {
            return format!("setfacl -m u:{user}:x {place}");
        }
        match operation {
            Operation::Read => format!("setfacl -m u:{user}:r {place}"),
            Operation::List | Operation::Execute => format!("setfacl -m u:{user}:rx {place}"),
            Operation::WriteIn if node.path.components().count() <= 3 && node.uid == 0 => {
                format!("install -d -o {user} -m 0755 {}, and name files in it", node.path.join("keyward").display())
            }
            Operation::WriteIn => format!("chown {user} {place}"),
        }
    }
}

/// True if this process has the identity, so that what the system refuses it is refused to the agent.
fn is_current(identity: &Identity) -> bool {
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
    let kind = if metadata.is_symlink() { "a symlink" } else { "no regular file" };
    let found = format!("{key}: {} is {kind}, which the agent does not replace", path.display());
    Some(Problem::new(ErrorCode::OutputNotRegular, found).fix(format!("rm {}", path.display())))
}

/// Less than this is a full disk for a file of tokens.
const LEAST_SPACE: u64 = 64 * 1024;

fn space_problem(key: &str, path: &Path) -> Option<Problem> {
    let existing = path.ancestors().find(|path| path.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    let shown = path.display();
    if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        let found = format!("{key}: the file system of {shown} is read-only");
        return Some(Problem::new(ErrorCode::OutputFolder, found).fix(format!("findmnt -T {shown}")));
    }
    // Some file systems tell no sizes.
    let is_full = disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_SPACE;
    let no_files = disk.f_files > 0 && disk.f_favail == 0;
    (is_full || no_files).then(|| {
        let what = if is_full { "space" } else { "files" };
        let found = format!("{key}: the file system of {shown} has no {what} left");
        Problem::new(ErrorCode::OutputFailed, found).fix(format!("df -h {shown}; df -i {shown}"))
    })
}
