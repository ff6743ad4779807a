//! A lock file beside each sink, so that one agent writes it at a time.
//!
//! The lock is on a separate file, `.NAME.lock`, since the sink itself is replaced at each write. The kernel releases it when
//! the process ends; an orderly stop removes the lock file too.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use keyward_machine::secure_dir::{Dir, DirError};

/// Lock on a sink, held until dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    folder: Dir,
    name: OsString,
    lock: OwnedFd,
}

impl FileLock {
    /// Locks `sink`.
    pub(super) fn acquire(sink: &Path) -> Result<Self, FileLockError> {
        // The previous holder removes the lock file; a lock on a removed file excludes no process.
        for _ in 0..ATTEMPTS {
            let lock = Self::lock(sink)?;
            if lock.is_current_in(&lock.folder) {
                return Ok(lock);
            }
        }
        Err(FileLockError::HeldByOther { path: sink.to_owned() })
    }

    /// Returns true while the lock excludes others: its file is still at the path that another agent would lock.
    pub(super) fn is_held(&self, sink: &Path) -> bool {
        Dir::open_parent(sink).is_ok_and(|(folder, _)| self.is_current_in(&folder))
    }

    fn lock(sink: &Path) -> Result<Self, FileLockError> {
        let (folder, file) = Dir::open_parent(sink)?;
        let mut name = OsString::from(".");
        name.push(file);
        name.push(".lock");
        let fail = |errno: Errno| FileLockError::Lock { path: sink.with_file_name(&name), source: errno.into() };
        let lock = open(&folder, &name).map_err(fail)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // On a file system without locks the token is written all the same; nothing excludes a second agent there.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(Self { folder, name, lock }),
            Err(Errno::WOULDBLOCK) => Err(FileLockError::HeldByOther { path: sink.to_owned() }),
            Err(errno) => Err(fail(errno)),
        }
    }

    fn is_current_in(&self, folder: &Dir) -> bool {
        let current_file = folder.stat(Path::new(&self.name)).ok().flatten();
        let lock_stat = rustix::fs::fstat(&self.lock).ok();
        current_file
            .zip(lock_stat)
            .is_some_and(|(current, lock)| (current.st_dev, current.st_ino) == (lock.st_dev, lock.st_ino))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // By now the name may be that of another agent's lock file.
        if self.is_current_in(&self.folder) {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

const ATTEMPTS: u32 = 8;

/// Opens or creates the lock file. In two steps: with `O_CREAT` the kernel refuses to open another user's file in a sticky
/// folder (`fs.protected_regular`).
fn open(folder: &Dir, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        match rustix::fs::openat(folder, name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Reason why a sink cannot be locked.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileLockError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] DirError),
    /// Another agent holds the lock.
    #[error("another agent writes {}; configure a file of its own for each agent, or stop the other one", path.display())]
    HeldByOther {
        /// The sink.
        path: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}; let the agent's user write there, and remove that file if another user left it", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
