//! Refuses a folder in which others could put a file of their own in the place of a sink.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use keyward_machine::posix_acl;

/// A folder that users other than root and the agent's own may write.
#[derive(Debug, thiserror::Error)]
#[error(
    "users other than root and the agent's can write the folder {} (owner {owner}, mode {mode:04o}); \
     use another folder, or set shared_folder = true",
    .folder.display()
)]
pub(super) struct SharedFolder {
    folder: PathBuf,
    owner: u32,
    mode: u32,
}

/// Checks the folder of a sink, which may have been replaced since the configuration was read.
pub(super) fn refuse_shared_folder(sink: &Path) -> Result<(), SharedFolder> {
    let Some(folder) = sink.parent() else { return Ok(()) };
    // The write itself reports a folder that is missing.
    let Ok(metadata) = std::fs::metadata(folder) else { return Ok(()) };
    let owner = metadata.uid();
    let mode = metadata.mode() & 0o7777;
    let user = rustix::process::geteuid().as_raw();
    // With a list, the group bits are its mask. It is read by path, as the mode is: somebody who could swap the folder in between
    // could as well swap it before the write, which looks it up again.
    let is_group_writable = || {
        let writers = posix_acl::writers_of_path(folder);
        writers.is_none_or(|writers| writers.iter().any(|writer| writer.is_other_than(user)))
    };
    let is_shared = (owner != 0 && owner != user) || mode & 0o002 != 0 || (mode & 0o020 != 0 && is_group_writable());
    if is_shared { Err(SharedFolder { folder: folder.to_owned(), owner, mode }) } else { Ok(()) }
}
