//! Replaces files atomically: a reader sees the old content or the new, never a part, and never with a wider mode.
//!
//! Blocks: async callers go through `spawn_blocking`. The destination is never opened for writing and never followed:
//! a symlink, FIFO, device, socket or folder in its place is refused, without waiting on it.

mod error;
mod sweep;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

pub use error::ReplaceError;
pub(crate) use sweep::is_temporary_of;
pub use sweep::{sweep, sweep_and_log};

use crate::secure_dir::Dir;

/// Mode and ownership of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, such as `0o600`. The umask is ignored.
    pub mode: u32,
    /// The owner's id; `None` leaves the file to the running user.
    pub owner: Option<u32>,
    /// The group's id; `None` leaves the group to the system (the running group, or that of a setgid folder).
    pub group: Option<u32>,
}

/// Outcome of an operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file was replaced, emptied or removed.
    Written,
    /// The file already had that content and those attributes and was not touched.
    Unchanged,
}

/// Replaces `path` by a regular file with these bytes and attributes.
///
/// Everything is set on a temporary file in the same folder, by its descriptor, before it is renamed to `path`. A file
/// that already has this content and these attributes keeps its inode and times.
///
/// # Errors
/// `path` is unchanged, except if only the sync of its folder failed after the rename.
pub fn replace(path: &Path, bytes: &[u8], attributes: &Attributes) -> Result<Outcome, ReplaceError> {
    replace_in(&Dir::open_parent(path)?.0, path, bytes, attributes)
}

/// Replaces a file like [`replace`] in its folder, which is open.
pub fn replace_in(folder: &Dir, path: &Path, bytes: &[u8], attributes: &Attributes) -> Result<Outcome, ReplaceError> {
    let (_, name) = Dir::split(path)?;
    let existing = regular_or_absent(folder, name, path)?;
    if existing.is_some_and(|stat| has_content_and_attributes(folder, name, &stat, bytes, attributes)) {
        return Ok(Outcome::Unchanged);
    }
    write_and_rename(folder, name, path, attributes, |file| file.write_all(bytes))?;
    Ok(Outcome::Written)
}

/// Returns true if [`replace_in`] would change nothing.
pub fn is_current_in(folder: &Dir, path: &Path, bytes: &[u8], attributes: &Attributes) -> bool {
    let Ok((_, name)) = Dir::split(path) else { return false };
    let existing = regular_or_absent(folder, name, path).ok().flatten();
    existing.is_some_and(|stat| has_content_and_attributes(folder, name, &stat, bytes, attributes))
}

/// Creates `path` with these bytes and attributes, as a whole. Returns false if there is something of that name, which
/// stays as it is.
///
/// # Errors
/// There is no file at `path`, except if only the sync of its folder failed.
pub fn create(path: &Path, bytes: &[u8], attributes: &Attributes) -> Result<bool, ReplaceError> {
    let (folder, name) = Dir::open_parent(path)?;
    let at = |step, advice| move |source: io::Error| ReplaceError::Step { step, path: path.to_owned(), advice, source };
    let temporary = write_temporary(&folder, &name, path, attributes, |file| file.write_all(bytes))?;
    // A link fails if the name exists, which a rename does not (link(2)): of two creators one wins, and neither file is lost.
    match rustix::fs::linkat(&folder, &temporary.name, &folder, &name, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(errno) => return Err(at("link the new file to", ADVICE_WRITE)(errno.into())),
    }
    // Removes the temporary name first: one sync then covers both changes of the folder.
    drop(temporary);
    folder.sync().map_err(at("sync the folder of", ADVICE_SPACE))?;
    Ok(true)
}

/// Replaces a file like [`replace_in`] and keeps the old file as `path` with `.bak` appended, with its content, mode and
/// owner.
///
/// # Errors
/// As [`replace`]; the copy could not be made, and nothing has changed at `path`.
pub fn replace_with_backup_in(
    folder: &Dir,
    path: &Path,
    bytes: &[u8],
    attributes: &Attributes,
) -> Result<Outcome, ReplaceError> {
    let (_, name) = Dir::split(path)?;
    if let Some(existing) = regular_or_absent(folder, name, path)? {
        if has_content_and_attributes(folder, name, &existing, bytes, attributes) {
            return Ok(Outcome::Unchanged);
        }
        back_up(folder, name).map_err(|source| ReplaceError::Step {
            step: "keep a copy of",
            path: path.to_owned(),
            advice: ADVICE_WRITE,
            source,
        })?;
    }
    write_and_rename(folder, name, path, attributes, |file| file.write_all(bytes))?;
    Ok(Outcome::Written)
}

/// Links the file to a second name, replacing a file of that name. The rename of the new content then leaves the old
/// content under the second name.
fn back_up(folder: &Dir, name: &OsStr) -> io::Result<()> {
    let temporary = temporary_name(name)?;
    // By a temporary name: link(2) does not replace an earlier copy, rename(2) does.
    rustix::fs::linkat(folder, name, folder, &temporary, AtFlags::empty())?;
    let mut backup = name.to_owned();
    backup.push(".bak");
    let renamed = rustix::fs::renameat(folder, &temporary, folder, &backup);
    // A rename between two names of one file does nothing: an earlier try has made the copy already.
    let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
    Ok(renamed?)
}

/// Replaces a file like [`replace`] with the bytes that `write` writes, for content too large for memory.
pub fn replace_with(
    path: &Path,
    attributes: &Attributes,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> Result<(), ReplaceError> {
    let (folder, name) = Dir::open_parent(path)?;
    regular_or_absent(&folder, &name, path)?;
    write_and_rename(&folder, &name, path, attributes, write)
}

fn write_and_rename(
    folder: &Dir,
    name: &OsStr,
    path: &Path,
    attributes: &Attributes,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> Result<(), ReplaceError> {
    let at = |step, advice| move |source: io::Error| ReplaceError::Step { step, path: path.to_owned(), advice, source };
    let temporary = write_temporary(folder, name, path, attributes, write)?;
    temporary.rename_to(name).map_err(|error| {
        let is_mount = error.kind() == io::ErrorKind::ResourceBusy;
        at("rename the new file to", if is_mount { ADVICE_MOUNT } else { ADVICE_WRITE })(error)
    })?;
    folder.sync().map_err(at("sync the folder of", ADVICE_SPACE))
}

/// Writes a temporary file in the folder of `path`, with its content and attributes on the disk.
fn write_temporary<'a>(
    folder: &'a Dir,
    name: &OsStr,
    path: &Path,
    attributes: &Attributes,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> Result<Temporary<'a>, ReplaceError> {
    let at = |step, advice| move |source: io::Error| ReplaceError::Step { step, path: path.to_owned(), advice, source };
    let mut temporary = Temporary::create(folder, name).map_err(at("create a file beside", ADVICE_WRITE))?;
    write(&mut temporary.file).map_err(at("write the new content of", ADVICE_SPACE))?;
    let file = &temporary.file;
    let owner = attributes.owner.and_then(settable_id);
    let group = attributes.group.and_then(settable_id);
    if owner.is_some() || group.is_some() {
        rustix::fs::fchown(file, owner.map(Uid::from_raw), group.map(Gid::from_raw))
            .map_err(|errno| at("set the owner and group of", ADVICE_CHOWN)(errno.into()))?;
    }
    // After the owner: a change of owner may clear bits of the mode.
    rustix::fs::fchmod(file, Mode::from_raw_mode(attributes.mode & 0o7777))
        .map_err(|errno| at("set the mode of", ADVICE_WRITE)(errno.into()))?;
    // Before the rename: after a loss of power the name must not lead to content that never reached the disk.
    file.sync_all().map_err(at("sync the new content of", ADVICE_SPACE))?;
    Ok(temporary)
}

/// Empties a file like [`replace`] with no content; does nothing if it does not exist.
pub fn truncate(path: &Path, attributes: &Attributes) -> Result<Outcome, ReplaceError> {
    match Dir::open_parent(path) {
        Err(error) if error.is_not_found() => Ok(Outcome::Unchanged),
        Err(error) => Err(error.into()),
        Ok((folder, name)) => match regular_or_absent(&folder, &name, path)? {
            None => Ok(Outcome::Unchanged),
            Some(_) => replace(path, b"", attributes),
        },
    }
}

/// Removes the file, if it exists and is a regular file.
pub fn remove(path: &Path) -> Result<Outcome, ReplaceError> {
    let (folder, name) = match Dir::open_parent(path) {
        Err(error) if error.is_not_found() => return Ok(Outcome::Unchanged),
        other => other?,
    };
    if regular_or_absent(&folder, &name, path)?.is_none() {
        return Ok(Outcome::Unchanged);
    }
    let at = |step| move |source| ReplaceError::Step { step, path: path.to_owned(), advice: ADVICE_WRITE, source };
    match rustix::fs::unlinkat(&folder, &name, AtFlags::empty()) {
        Ok(()) => folder.sync().map_err(at("sync the folder of")).map(|()| Outcome::Written),
        Err(Errno::NOENT) => Ok(Outcome::Unchanged),
        Err(errno) => Err(at("remove")(errno.into())),
    }
}

/// Tries to make a temporary file that no concurrent `sweep` has deleted.
const ATTEMPTS: u32 = 8;

const ADVICE_WRITE: &str = "the user that keyward runs as must be able to write in that folder";
const ADVICE_MOUNT: &str =
    "it is a mount point, as a single file that is mounted into a container; mount its folder instead";
const ADVICE_CHOWN: &str = "the agent needs CAP_CHOWN to give files away, or must be a member of the group";
const ADVICE_SPACE: &str = "check its file system for free space and errors";

fn regular_or_absent(folder: &Dir, name: &OsStr, path: &Path) -> Result<Option<Stat>, ReplaceError> {
    let stat = folder.stat(Path::new(name)).map_err(|source| ReplaceError::Step {
        step: "look at",
        path: path.to_owned(),
        advice: "the user that keyward runs as must be able to enter its folder",
        source,
    })?;
    match stat {
        Some(stat) if !is_regular(&stat) => {
            Err(ReplaceError::NotRegular { path: path.to_owned(), found: describe_file_type(stat.st_mode) })
        }
        other => Ok(other),
    }
}

/// Returns true if the file has this content and these attributes. A file with a second link does not: that name would
/// keep the old content.
fn has_content_and_attributes(folder: &Dir, name: &OsStr, stat: &Stat, bytes: &[u8], attributes: &Attributes) -> bool {
    let owner = attributes.owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    // A file with a second name is replaced: a write through that name would change this one, too.
    let same_attributes = stat.st_mode & 0o7777 == attributes.mode & 0o7777
        && stat.st_uid == owner
        && attributes.group.is_none_or(|group| stat.st_gid == group)
        && stat.st_nlink == 1;
    let same_length = u64::try_from(stat.st_size).is_ok_and(|size| size == bytes.len() as u64);
    same_attributes && same_length && read_in(folder, name, bytes.len()).is_some_and(|current| current[..] == *bytes)
}

/// Reads a regular file of at most `limit` bytes; `None` if there is none. A symlink in its place is not followed.
pub fn read(path: &Path, limit: usize) -> Option<Vec<u8>> {
    let (folder, name) = Dir::open_parent(path).ok()?;
    read_in(&folder, &name, limit)
}

/// Reads a file like [`read`] in its folder.
pub(crate) fn read_in(folder: &Dir, name: &OsStr, limit: usize) -> Option<Vec<u8>> {
    // NONBLOCK: the name may be that of a FIFO.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let length = usize::try_from(file.metadata().ok()?.len()).ok().filter(|length| *length <= limit)?;
    let mut bytes = Vec::with_capacity(length + 32);
    file.take(limit as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= limit).then_some(bytes)
}

/// A file under a random name; removed on drop unless it was renamed.
struct Temporary<'a> {
    folder: &'a Dir,
    name: OsString,
    file: std::fs::File,
    renamed: bool,
}

impl<'a> Temporary<'a> {
    fn create(folder: &'a Dir, target_name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let name = temporary_name(target_name)?;
            // Nobody else reads it before its owner and mode are set.
            let file = rustix::fs::openat(folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
            // Tells `sweep` that the file has a writer. One that came before the lock has removed the file.
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked != Err(Errno::WOULDBLOCK) && rustix::fs::fstat(&file)?.st_nlink > 0 {
                return Ok(Self { folder, name, file: file.into(), renamed: false });
            }
        }
        Err(Errno::AGAIN.into())
    }

    fn rename_to(mut self, name: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(self.folder, &self.name, self.folder, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// `.NAME.` and 16 hexadecimal digits.
pub(crate) fn temporary_name(target_name: &OsStr) -> io::Result<OsString> {
    let mut bytes = [0_u8; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the kernel returned no random bytes"))?;
    let mut name = OsString::from(".");
    name.push(target_name);
    name.push(format!(".{:016x}", u64::from_ne_bytes(bytes)));
    Ok(name)
}

/// Maps the system's "leave unchanged" id to `None`.
fn settable_id(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn describe_file_type(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => "a folder",
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "of an unknown kind",
    }
}
