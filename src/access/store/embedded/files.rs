//! Files that hold what others must not read.

use std::fs::{File, TryLockError};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::OpenError;

/// Opens the file, made where it is not there, locks it and gives it mode 0600. A symlink is not followed.
pub(super) fn private_file(path: &Path) -> Result<File, OpenError> {
    let fail = |source: std::io::Error| OpenError::File { path: path.to_owned(), source };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(|errno| fail(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(fail(std::io::Error::other("it is not a regular file")));
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse { path: path.to_owned() },
        TryLockError::Error(source) => fail(source),
    })?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)).map_err(|errno| fail(errno.into()))?;
    Ok(file)
}
