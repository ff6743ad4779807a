//! Checks that only root and the agent's user can write a configuration file and its folder: any other writer could decide
//! where tokens go.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use keyward_machine::os;
use keyward_machine::posix_acl::{self, AclWriter};
use rustix::fs::StatVfsMountFlags;

/// Returns problems with owner or mode of a file and its folder, each with advice. Read-only mounts, such as a
/// `ConfigMap`'s, have none. A folder in `checked` is skipped; folders above it are not checked.
pub(super) fn permission_issues(
    path: &Path,
    file: &File,
    metadata: &Metadata,
    user: u32,
    checked: &mut BTreeSet<PathBuf>,
) -> Vec<(String, String)> {
    if rustix::fs::fstatvfs(file).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return Vec::new();
    }
    let path_text = path.display().to_string();
    let acl = posix_acl::writers_of_file(file);
    let mut issues: Vec<_> =
        permission_issue("the file", &path_text, metadata, acl.as_deref(), user).into_iter().collect();
    // The folder of the name, and that of the file where the name is a symlink.
    let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let target_dir = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    for folder in [parent.map(Path::to_owned), target_dir].into_iter().flatten() {
        let Ok(canonical_dir) = folder.canonicalize() else { continue };
        if let Ok(metadata) = std::fs::metadata(&folder)
            && checked.insert(canonical_dir)
        {
            let read_only =
                rustix::fs::statvfs(&folder).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY));
            let acl = posix_acl::writers_of_path(&folder);
            let issue = permission_issue("its folder", &folder.display().to_string(), &metadata, acl.as_deref(), user);
            issues.extend(issue.filter(|_| !read_only));
        }
    }
    issues
}

/// The same of one file or folder by its owner, its mode, and the entries of its access control list that may write.
pub(super) fn permission_issue(
    what: &str,
    path: &str,
    metadata: &Metadata,
    acl: Option<&[AclWriter]>,
    user: u32,
) -> Option<(String, String)> {
    let owner = metadata.uid();
    let mode = metadata.mode() & 0o7777;
    // Others rely on the owner of their folder, and on the mode of a folder for temporary files.
    let is_folder = metadata.is_dir();
    let is_sticky = mode & 0o1000 != 0;
    let acl_writers: Option<Vec<AclWriter>> =
        acl.map(|writers| writers.iter().copied().filter(|writer| writer.is_other_than(user)).collect());
    // With a list, these bits are its mask: they are set for the agent's user alone, too.
    let is_group_writable = mode & 0o020 != 0 && acl_writers.as_ref().is_none_or(|writers| !writers.is_empty());
    let other_folder = || "use a folder that root or the agent's user owns and no other user can write".to_owned();
    let (who, advice) = if owner != 0 && owner != user {
        let advice = if is_folder { other_folder() } else { format!("chown root {path}") };
        let name = os::user_name(owner).unwrap_or_else(|| owner.to_string());
        // A folder of the service's user is right for the service, and foreign to root.
        let as_user =
            format!("; if the agent runs as {name}, run this command as that user: sudo -u {name} keyward ...");
        (format!("user {name}, who owns it,"), if user == 0 { advice + &as_user } else { advice })
    } else if is_folder && is_sticky && (is_group_writable || mode & 0o002 != 0) {
        ("everybody".to_owned(), other_folder())
    } else if mode & 0o002 != 0 {
        ("everybody".to_owned(), format!("chmod o-w {path}"))
    } else if is_group_writable {
        let group = group_name(metadata.gid());
        match acl_writers {
            Some(writers) => describe_acl(&writers, &group, path),
            None => (format!("group {group}"), format!("chmod g-w {path}")),
        }
    } else {
        return None;
    };
    let message = format!("{what} can be written by {who} and not only by root and the agent's user (mode {mode:04o})");
    Some((message, advice))
}

/// Names the entries of a list, and the command that takes the right to write from them. `chmod g-w` would change the mask, and
/// take it from the agent's user too.
fn describe_acl(writers: &[AclWriter], owning_group: &str, path: &str) -> (String, String) {
    let mut names = Vec::new();
    let mut removed = Vec::new();
    let mut command = vec!["setfacl".to_owned()];
    for writer in writers {
        match *writer {
            AclWriter::User(id) => {
                let user = os::user_name(id).unwrap_or_else(|| id.to_string());
                removed.push(format!("u:{user}"));
                names.push(format!("user {user}"));
            }
            AclWriter::Group(id) => {
                removed.push(format!("g:{}", group_name(id)));
                names.push(format!("group {}", group_name(id)));
            }
            // Each list has this entry, so that it cannot be removed.
            AclWriter::OwningGroup { other_rights } => {
                let letter = |bit: u16, letter: char| if other_rights & bit != 0 { letter } else { '-' };
                command.push(format!("-m g::{}-{}", letter(0o4, 'r'), letter(0o1, 'x')));
                names.push(format!("group {owning_group}"));
            }
        }
    }
    if !removed.is_empty() {
        command.push(format!("-x {}", removed.join(",")));
    }
    command.push(path.to_owned());
    (format!("{}, by its access control list,", names.join(" and ")), command.join(" "))
}

fn group_name(id: u32) -> String {
    os::group_name(id).unwrap_or_else(|| id.to_string())
}
