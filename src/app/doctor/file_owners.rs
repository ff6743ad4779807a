//! Reads owners and modes of all folders on a path, and the user's groups, to compute rights.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use keyward_machine::os;

use super::rights::{PathNode, UserIdentity};

/// Looks a user up by name or id.
pub(crate) fn identity(name: &str) -> Result<UserIdentity, String> {
    let entry = os::user_entry(name).map_err(|error| format!("user {name}: {error}"))?;
    let (name, uid, gid) = entry.ok_or_else(|| format!("this machine has no user {name}"))?;
    let groups = os::groups_of(&name, gid).map_err(|error| format!("groups of user {name}: {error}"))?;
    Ok(UserIdentity { name, uid, gid, groups: groups.into_iter().collect(), passes_modes: uid == 0 })
}

/// Returns the identity of this process, also for a user that the database does not have.
pub(crate) fn current_identity() -> UserIdentity {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let mut user = identity(&uid.to_string()).unwrap_or_else(|_| UserIdentity {
        name: uid.to_string(),
        uid,
        gid,
        groups: std::collections::BTreeSet::new(),
        passes_modes: uid == 0,
    });
    user.groups.extend(rustix::process::getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw));
    user
}

/// Returns folders and files from the root to `path`, with symlinks resolved. If the end does not exist, stops at the
/// deepest existing folder; the second value is then true.
pub(crate) fn nodes(path: &Path) -> io::Result<(Vec<PathNode>, bool)> {
    let mut is_missing = false;
    let existing = existing_part(path, &mut is_missing)?;
    let mut ancestors: Vec<&Path> = existing.ancestors().collect();
    ancestors.reverse();
    let nodes = ancestors.into_iter().map(node).collect::<io::Result<Vec<_>>>()?;
    Ok((nodes, is_missing))
}

/// Resolves the deepest part of a path that exists.
fn existing_part(path: &Path, is_missing: &mut bool) -> io::Result<PathBuf> {
    for ancestor in path.ancestors() {
        match ancestor.canonicalize() {
            Ok(existing) => return Ok(existing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => *is_missing = true,
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn node(path: &Path) -> io::Result<PathNode> {
    let metadata = path.metadata()?;
    Ok(PathNode {
        path: path.to_owned(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        mode: metadata.mode() & 0o7777,
        is_folder: metadata.is_dir(),
        has_acl: has_acl(path),
    })
}

/// Returns true if a path has an access control list. File systems without them answer with an error.
fn has_acl(path: &Path) -> bool {
    let mut none = [0_u8; 0];
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut none[..]).is_ok()
}

/// Finds a program as a service's shell and keyward do: by its path, or in the folders of systemd's default `PATH`.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    PROGRAM_FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// The `PATH` that systemd sets (`systemd.exec(5)`).
const PROGRAM_FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
