//! Removes temporary files of interrupted replacements.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::is_regular;
use crate::secure_dir::{Dir, DirError};

/// Removes temporary files in the folder of `path` that killed processes of this user left behind. Returns their number,
/// 0 if the folder cannot be listed.
///
/// A file lock marks those still being written. On a file system without locks, files older than a minute count as
/// abandoned.
pub fn sweep(path: &Path) -> Result<usize, DirError> {
    let (folder, name) = Dir::open_parent(path)?;
    let listed = rustix::fs::openat(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Ok(entries) = listed.and_then(rustix::fs::Dir::new) else { return Ok(0) };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut swept = 0;
    for entry in entries.flatten() {
        let entry_name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_temporary_of(&name, entry_name) {
            continue;
        }
        let Ok(Some(stat)) = folder.stat(Path::new(entry_name)) else { continue };
        let written = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        let old = || now.saturating_sub(written) > STALE_AFTER;
        let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && is_regular(&stat);
        if is_own && remove_if_abandoned(&folder, entry_name, old) {
            swept += 1;
        }
    }
    Ok(swept)
}

/// Sweeps like [`sweep`] and logs the result, for callers that start up.
pub fn sweep_and_log(path: &Path) {
    // A missing folder has nothing to sweep; the first write reports other problems with it.
    if let Ok(files @ 1..) = sweep(path) {
        tracing::info!(
            event = "file.swept",
            path = path.display().to_string(),
            files,
            "removed temporary files of an interrupted write"
        );
    }
}

/// Removes the temporary file unless a process is writing it: its writer holds a lock on it. Returns true if it was
/// removed.
fn remove_if_abandoned(folder: &Dir, name: &OsStr, old: impl FnOnce() -> bool) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Root opens files of any mode. For other users, an unreadable file already has its final mode and so is complete.
    let file = rustix::fs::openat(folder, name, flags, Mode::empty());
    let abandoned = match file.as_ref().map(|file| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(Ok(())) => true,
        Ok(Err(Errno::WOULDBLOCK)) => false,
        Ok(Err(_)) | Err(_) => old(),
    };
    let removed = abandoned && rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok();
    // Not before: a writer that has just created the file would get the lock and lose the file.
    drop(file);
    removed
}

/// Age beyond which no running process can still be writing a temporary file.
const STALE_AFTER: Duration = Duration::from_mins(1);

/// Returns true for a name that [`super::temporary_name`] makes of this one.
pub(crate) fn is_temporary_of(name: &OsStr, candidate: &OsStr) -> bool {
    let digits = candidate
        .as_bytes()
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(name.as_bytes()))
        .and_then(|rest| rest.strip_prefix(b"."));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic_file::temporary_name;

    #[test]
    fn only_temporary_names_are_recognized() {
        let name = OsStr::new("token");
        assert!(is_temporary_of(name, &temporary_name(name).unwrap()));
        for other in [".token.lock", ".token.0123456789abcdeg", "token.0123456789abcdef", ".tokens.0123456789abcdef"] {
            assert!(!is_temporary_of(name, OsStr::new(other)), "{other}");
        }
    }
}
