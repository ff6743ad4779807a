//! Rights of a user on files, computed from owner, group and mode of each folder on the way, without becoming that user.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// User whose rights are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserIdentity {
    /// Name, or the id of a user without one.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Main group.
    pub gid: u32,
    /// All groups.
    pub groups: BTreeSet<u32>,
    /// True for root with the capability to pass all checks of modes.
    pub passes_modes: bool,
}

/// A folder or file on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathNode {
    /// The path.
    pub path: PathBuf,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// True for a folder.
    pub is_folder: bool,
    /// True if an access control list adds to the mode.
    pub has_acl: bool,
}

/// Operation on the last node of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOperation {
    /// Reads the file.
    Read,
    /// Lists the folder and reads in it.
    List,
    /// Creates and replaces files in the folder.
    WriteDirectory,
    /// Executes the file.
    Execute,
}

/// Result of the check of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessVerdict<'a> {
    /// Allowed.
    Allowed,
    /// Denied by this node, where these permission bits (`rwx`, 0 to 7) are missing.
    Denied(&'a PathNode, u32),
    /// Denied by the mode of this node, whose access control list may allow it.
    Unknown(&'a PathNode),
}

impl UserIdentity {
    /// Checks an operation of the user on the last of the nodes, which begin at the root folder.
    pub(crate) fn check<'a>(&self, nodes: &'a [PathNode], operation: FileOperation) -> AccessVerdict<'a> {
        let Some((last, way)) = nodes.split_last() else { return AccessVerdict::Allowed };
        let needed = match operation {
            FileOperation::Read => 0o4,
            FileOperation::List => 0o5,
            FileOperation::WriteDirectory => 0o3,
            FileOperation::Execute => 0o1,
        };
        let way = way.iter().map(|node| (node, 0o1));
        for (node, needed) in way.chain([(last, needed)]) {
            let missing = needed & !self.bits(node);
            if missing != 0 {
                return if node.has_acl { AccessVerdict::Unknown(node) } else { AccessVerdict::Denied(node, missing) };
            }
        }
        AccessVerdict::Allowed
    }

    /// Permission bits of a node for the user. The first class that fits counts, even if a later one would allow more.
    fn bits(&self, node: &PathNode) -> u32 {
        if self.passes_modes {
            // Executing needs one execute bit at least, also for root.
            return if node.is_folder || node.mode & 0o111 != 0 { 0o7 } else { 0o6 };
        }
        if node.uid == self.uid {
            node.mode >> 6 & 0o7
        } else if self.is_member(node.gid) {
            node.mode >> 3 & 0o7
        } else {
            node.mode & 0o7
        }
    }

    /// Returns true if the user is in a group.
    pub(crate) fn is_member(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(path: &str, (uid, gid): (u32, u32), mode: u32) -> PathNode {
        PathNode { path: path.into(), uid, gid, mode, is_folder: !path.contains("key"), has_acl: false }
    }

    fn user(uid: u32, groups: &[u32]) -> UserIdentity {
        let groups = groups.iter().copied().collect();
        UserIdentity { name: uid.to_string(), uid, gid: uid, groups, passes_modes: false }
    }

    #[test]
    fn the_first_class_that_fits_decides_and_each_folder_must_be_passed() {
        let way = |folder: u32, file: u32| {
            vec![node("/", (0, 0), 0o755), node("/etc/x", (0, 10), folder), node("/etc/x/a.key", (5, 10), file)]
        };
        let check = |identity: &UserIdentity, way: &[PathNode], operation, denied: Option<(&str, u32)>| {
            let found = match identity.check(way, operation) {
                AccessVerdict::Denied(node, bits) => Some((node.path.to_str().unwrap().to_owned(), bits)),
                _ => None,
            };
            assert_eq!(found, denied.map(|(path, bits)| (path.to_owned(), bits)), "{identity:?} {operation:?}");
        };
        let member = user(7, &[10]);
        check(&member, &way(0o750, 0o640), FileOperation::Read, None);
        check(&user(7, &[]), &way(0o750, 0o644), FileOperation::Read, Some(("/etc/x", 1)));
        check(&user(7, &[]), &way(0o755, 0o640), FileOperation::Read, Some(("/etc/x/a.key", 4)));
        // The owner's bits count for the owner, whatever others may.
        check(&user(5, &[10]), &way(0o755, 0o044), FileOperation::Read, Some(("/etc/x/a.key", 4)));
        check(&member, &way(0o750, 0)[..2], FileOperation::WriteDirectory, Some(("/etc/x", 2)));
        check(&member, &way(0o770, 0)[..2], FileOperation::WriteDirectory, None);
        check(&member, &way(0o710, 0)[..2], FileOperation::List, Some(("/etc/x", 4)));
        check(&member, &way(0o750, 0o640), FileOperation::Execute, Some(("/etc/x/a.key", 1)));
    }

    #[test]
    fn root_passes_modes_unless_the_unit_takes_the_capability_away() {
        let way = [node("/", (0, 0), 0o755), node("/x", (5, 5), 0o700)];
        let mut root = user(0, &[]);
        assert!(matches!(root.check(&way, FileOperation::WriteDirectory), AccessVerdict::Denied(..)));
        root.passes_modes = true;
        assert_eq!(root.check(&way, FileOperation::WriteDirectory), AccessVerdict::Allowed);
        let file = [node("/x.key", (0, 0), 0o600)];
        assert!(matches!(root.check(&file, FileOperation::Execute), AccessVerdict::Denied(_, 1)));
    }

    #[test]
    fn a_mode_that_an_access_control_list_adds_to_gives_no_verdict() {
        let mut way = [node("/", (0, 0), 0o755), node("/x", (0, 0), 0o700)];
        way[1].has_acl = true;
        assert!(matches!(user(5, &[]).check(&way, FileOperation::WriteDirectory), AccessVerdict::Unknown(_)));
    }
}
