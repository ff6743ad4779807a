//! One writer a file: a lock beside the sink, which a second agent finds held.
//!
//! The lock is on a file of its own, `.NAME.lock`, since the sink itself is replaced at each write. It ends with the
//! process, however that ends; the lock file is removed when the claim is given up in good order.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::secure_dir::{Dir, DirError};

/// The right to write a sink, held until dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    folder: Dir,
    name: OsString,
    lock: OwnedFd,
}

impl FileLock {
    /// Takes the right to write `sink`.
    pub(super) fn take(sink: &Path) -> Result<Self, FileLockError> {
        // Who gives a claim up removes the lock file; one that was opened just before keeps nobody out.
        for _ in 0..ATTEMPTS {
            let lock = Self::lock(sink)?;
            if lock.is_current_in(&lock.folder) {
                return Ok(lock);
            }
        }
        Err(FileLockError::Held { path: sink.to_owned() })
    }

    /// Whether this claim still keeps others out: its lock file stands where another agent would look for it.
    pub(super) fn holds(&self, sink: &Path) -> bool {
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
            // A file system without locks must not cost the token: there, nothing keeps a second agent out.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(Self { folder, name, lock }),
            Err(Errno::WOULDBLOCK) => Err(FileLockError::Held { path: sink.to_owned() }),
            Err(errno) => Err(fail(errno)),
        }
    }

    fn is_current_in(&self, folder: &Dir) -> bool {
        let there = folder.stat(Path::new(&self.name)).ok().flatten();
        let ours = rustix::fs::fstat(&self.lock).ok();
        there.zip(ours).is_some_and(|(there, ours)| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Only while it is ours: by now the name may lead to another agent's lock.
        if self.is_current_in(&self.folder) {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

const ATTEMPTS: u32 = 8;

/// Opens the lock file, or makes it. In two steps: with `O_CREAT` the kernel refuses a file of another user in a sticky
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

/// Why a sink may not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileLockError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] DirError),
    /// Another agent has it.
    #[error("another agent writes {}; give each agent a file of its own, or stop the other one", path.display())]
    Held {
        /// The sink.
        path: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}; let the agent's user write there, and remove that file if another user left it", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}
