//! A lock between the gateways of one machine: a file that is locked for as long as its holder lives (flock(2)).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A lock, held or not. Dropping it lets it go; the file stays.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    pub(super) path: PathBuf,
    held: bool,
}

impl Lock {
    /// Opens the file, or makes it (mode 0600). The lock is not taken yet.
    ///
    /// # Errors
    /// It cannot be opened, or is a symlink.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        Ok(Self { file, path, held: false })
    }

    /// Whether it is held, taken now if nobody else has it. Does not wait.
    pub(super) fn take(&mut self) -> bool {
        self.held = self.held || self.file.try_lock().is_ok();
        self.held
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
    fn one_holds_it_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Lock::open(folder.path().join("lock")).unwrap();
        let (mut one, mut two) = (open(), open());
        assert!(one.take() && one.take() && !two.take());
        drop(one);
        assert!(two.take());
        std::os::unix::fs::symlink("lock", folder.path().join("link")).unwrap();
        assert!(Lock::open(folder.path().join("link")).is_err());
    }
}
