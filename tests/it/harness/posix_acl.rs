//! Access control lists of folders, set without the package acl.

use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use super::not_run::not_run;

/// Sets the list of a folder: its owner has all rights, its group `owning_group`, each of these users the rights beside the id, and
/// others may read. Returns false, and says that the test was not run, on a file system without such lists.
pub(crate) fn set_acl(folder: &Path, users: &[(u32, u16)], owning_group: u16) -> bool {
    const NO_ID: u32 = u32::MAX;
    let mut entries = vec![(0x01_u16, 7_u16, NO_ID)];
    entries.extend(users.iter().map(|(id, rights)| (0x02, *rights, *id)));
    entries.extend([(0x04, owning_group, NO_ID), (0x10, 7, NO_ID), (0x20, 5, NO_ID)]);
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    match setxattr(folder, "system.posix_acl_access", &bytes, XattrFlags::empty()) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP) => {
            not_run("the file system of temporary files has no access control lists");
            false
        }
        Err(errno) => panic!("{}: {errno}", folder.display()),
    }
}
