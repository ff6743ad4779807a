//! Opens private files under a lock.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use redb::StorageBackend;
use redb::backends::FileBackend;
use rustix::fs::{Mode, OFlags};

use super::OpenError;

/// A locked file: no other process opens it before this is dropped.
///
/// The lock is released explicitly: closing the file is not enough while a process that was forked meanwhile still has
/// it, until that executes its program (flock(2): duplicates of a descriptor share one lock).
#[derive(Debug)]
pub(super) struct LockedFile {
    backend: FileBackend,
    lock: File,
}

impl LockedFile {
    /// Opens and locks an existing file. Symlinks are not followed.
    pub(super) fn existing(path: &Path) -> Result<Self, OpenError> {
        Self::from_file(path, open(path, OFlags::empty())?)
    }

    /// Opens and locks a file with mode 0600, and creates it if missing. Symlinks are not followed.
    pub(super) fn open_private(path: &Path) -> Result<Self, OpenError> {
        let file = open(path, OFlags::CREATE)?;
        let changed = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600));
        changed.map_err(|errno| OpenError::File { path: path.to_owned(), source: errno.into() })?;
        Self::from_file(path, file)
    }

    fn from_file(path: &Path, file: File) -> Result<Self, OpenError> {
        let lock = file.try_clone().map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let backend = FileBackend::new(file)
            .map_err(|error| OpenError::Damaged { store: path.display().to_string(), source: error.into() })?;
        Ok(Self { backend, lock })
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Fails for a file system without locks only.
        let _ = self.lock.unlock();
    }
}

impl StorageBackend for LockedFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }
}

fn open(path: &Path, more: OFlags) -> Result<File, OpenError> {
    let fail = |source: io::Error| OpenError::File { path: path.to_owned(), source };
    let flags = more | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(|errno| fail(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(fail(io::Error::other("it is not a regular file")));
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse { path: path.to_owned() },
        TryLockError::Error(source) => fail(source),
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_file_is_free_though_a_forked_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let first = LockedFile::open_private(&path).unwrap();
        assert!(matches!(LockedFile::existing(&path), Err(OpenError::InUse { .. })));
        let inherited = first.lock.try_clone().unwrap();
        drop(first);
        LockedFile::existing(&path).unwrap();
        drop(inherited);
    }
}
