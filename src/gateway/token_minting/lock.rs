//! Lock between the gateways of one machine: a file that stays locked while its holder runs (flock(2)).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A file lock, held or not. Dropping it releases it; the file stays.
#[derive(Debug)]
pub(super) struct MintLock {
    file: File,
    pub(super) path: PathBuf,
    held: bool,
}

impl MintLock {
    /// Opens or creates the file (mode 0600) without locking it.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        Ok(Self { file, path, held: false })
    }

    /// Acquires the lock unless another process holds it, without waiting. Returns true if it is held.
    pub(super) fn try_acquire(&mut self) -> bool {
        self.held = self.held || self.file.try_lock().is_ok();
        self.held
    }
}

impl Drop for MintLock {
    fn drop(&mut self) {
        // A process that was forked meanwhile shares the lock until it executes its program.
        let _ = self.file.unlock();
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_exclusive_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let open = || MintLock::open(folder.path().join("lock")).unwrap();
        let mut one = open();
        let mut two = open();
        assert!(one.try_acquire() && one.try_acquire() && !two.try_acquire());
        // As a forked process has it.
        let _inherited = one.file.try_clone().unwrap();
        drop(one);
        assert!(two.try_acquire());
        std::os::unix::fs::symlink("lock", folder.path().join("link")).unwrap();
        assert!(MintLock::open(folder.path().join("link")).is_err());
    }
}
