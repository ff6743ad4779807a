//! Refuses a folder in which others could put a file of their own in the place of a sink.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

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
///
/// # Errors
/// Another user owns the folder, or its mode lets others write.
pub(super) fn refuse_shared_folder(sink: &Path) -> Result<(), SharedFolder> {
    let Some(folder) = sink.parent() else { return Ok(()) };
    // The write itself reports a folder that is missing.
    let Ok(metadata) = std::fs::metadata(folder) else { return Ok(()) };
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    let is_ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if is_ours && mode & 0o022 == 0 { Ok(()) } else { Err(SharedFolder { folder: folder.to_owned(), owner, mode }) }
}
