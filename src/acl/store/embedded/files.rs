//! Opens private files.

use std::fs::{File, TryLockError};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::OpenError;

/// Opens and locks an existing file. Symlinks are not followed.
pub(super) fn existing_file(path: &Path) -> Result<File, OpenError> {
    open(path, OFlags::empty())
}

/// Opens and locks a file with mode 0600, and creates it if missing. Symlinks are not followed.
pub(super) fn private_file(path: &Path) -> Result<File, OpenError> {
    let file = open(path, OFlags::CREATE)?;
    let changed = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600));
    changed.map_err(|errno| OpenError::File { path: path.to_owned(), source: errno.into() })?;
    Ok(file)
}

fn open(path: &Path, more: OFlags) -> Result<File, OpenError> {
    let fail = |source: std::io::Error| OpenError::File { path: path.to_owned(), source };
    let flags = more | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(|errno| fail(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(fail(std::io::Error::other("it is not a regular file")));
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse { path: path.to_owned() },
        TryLockError::Error(source) => fail(source),
    })?;
    Ok(file)
}
