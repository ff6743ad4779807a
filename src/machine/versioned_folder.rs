//! Replaces several files together: a symlink leads to a folder that holds them, and is replaced as a whole.
//!
//! A reader that resolves the symlink once, by opening the folder or by reading where the link leads to, sees files that belong
//! together. The previous folder stays until the next replacement, for readers that are still in it, unless its files have other rights
//! than the new ones. Blocks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::atomic_file::{self, Attributes, Outcome, ReplaceError, is_temporary_of, temporary_name};
use crate::secure_dir::Dir;

/// Makes `path` a symlink to a folder with exactly these files, each with these attributes. The folder may be searched by everyone;
/// its files decide who may read them.
///
/// # Errors
/// Something else than a symlink that this function has made is at `path`; a step failed. `path` leads to the previous files then,
/// except if only the sync of its folder failed.
pub fn replace(path: &Path, files: &[(&str, &[u8])], attributes: &Attributes) -> Result<Outcome, ReplaceError> {
    let (parent, name) = Dir::open_parent(path)?;
    let previous = current_version(&parent, &name, path)?;
    if previous.as_ref().is_some_and(|version| holds(&parent, version, path, files, attributes)) {
        return Ok(Outcome::Unchanged);
    }
    let mut version = Version::create(&parent, &name, path)?;
    for (file, bytes) in files {
        atomic_file::replace_in(&version.folder, &path.join(file), bytes, attributes)?;
    }
    version.publish(path)?;
    // Nobody keeps a right by the previous files that the new ones do not give.
    let previous = previous.filter(|previous| has_rights(&parent, previous, path, attributes));
    remove_others(&parent, &name, &[Some(version.name.clone()), previous]);
    Ok(Outcome::Written)
}

/// Returns true if [`replace`] would change nothing.
pub fn is_current(path: &Path, files: &[(&str, &[u8])], attributes: &Attributes) -> bool {
    let Ok((parent, name)) = Dir::open_parent(path) else { return false };
    let version = current_version(&parent, &name, path).ok().flatten();
    version.is_some_and(|version| holds(&parent, &version, path, files, attributes))
}

/// Reads files of the folder that `path` leads to, each of at most `limit` bytes. `None` if there is no such folder, or it lacks one of them.
pub fn read(path: &Path, files: &[&str], limit: usize) -> Option<Vec<Vec<u8>>> {
    let folder = Dir::from(open_version(path)?);
    files.iter().map(|name| atomic_file::read_in(&folder, OsStr::new(name), limit)).collect()
}

/// Returns the folder that `path` leads to.
pub fn current(path: &Path) -> Option<PathBuf> {
    let (parent, name) = Dir::open_parent(path).ok()?;
    let version = current_version(&parent, &name, path).ok().flatten()?;
    Some(path.with_file_name(version))
}

/// Removes what interrupted replacements left behind, and folders older than the previous one. Returns the number of what was removed.
pub fn sweep(path: &Path) -> usize {
    let Ok((parent, name)) = Dir::open_parent(path) else { return 0 };
    let Ok(current) = current_version(&parent, &name, path) else { return 0 };
    let published = current.as_ref().and_then(|current| modified(&parent, current));
    // A folder that is younger than the current one was never published.
    let mut older: Vec<_> = versions(&parent, &name)
        .filter(|version| Some(version) != current.as_ref())
        .filter_map(|version| Some((modified(&parent, &version)?, version)))
        .filter(|(time, _)| Some(*time) <= published)
        .collect();
    older.sort();
    let previous = older.pop().map(|(_, version)| version);
    remove_others(&parent, &name, &[current, previous])
}

/// A new folder; removed on drop unless it was published.
struct Version<'a> {
    parent: &'a Dir,
    link_name: &'a OsStr,
    name: OsString,
    folder: Dir,
    is_published: bool,
}

impl<'a> Version<'a> {
    fn create(parent: &'a Dir, link_name: &'a OsStr, path: &Path) -> Result<Self, ReplaceError> {
        let create = || {
            let name = temporary_name(link_name)?;
            rustix::fs::mkdirat(parent, &name, Mode::RWXU)?;
            let folder = rustix::fs::openat(parent, &name, OPEN, Mode::empty())?;
            // The umask is ignored.
            rustix::fs::fchmod(&folder, Mode::from_raw_mode(FOLDER_MODE))?;
            Ok((name, Dir::from(folder)))
        };
        let (name, folder) = create().map_err(step(path, "create a folder beside", ADVICE_WRITE))?;
        Ok(Self { parent, link_name, name, folder, is_published: false })
    }

    /// Syncs the folder, and replaces the symlink by one that leads to it.
    fn publish(&mut self, path: &Path) -> Result<(), ReplaceError> {
        self.folder.sync().map_err(step(path, "sync the new folder of", ADVICE_SPACE))?;
        let link = temporary_name(self.link_name).map_err(step(path, "create a symlink beside", ADVICE_WRITE))?;
        let placed = rustix::fs::symlinkat(&self.name, self.parent, &link)
            .and_then(|()| rustix::fs::renameat(self.parent, &link, self.parent, self.link_name));
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(self.parent, &link, AtFlags::empty());
        }
        placed.map_err(|errno| step(path, "rename the new symlink to", ADVICE_WRITE)(errno.into()))?;
        self.is_published = true;
        self.parent.sync().map_err(step(path, "sync the folder of", ADVICE_SPACE))
    }
}

impl Drop for Version<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            remove_version(self.parent, &self.name);
        }
    }
}

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Everyone may search it, and nobody but its owner may change it.
const FOLDER_MODE: u32 = 0o755;

const ADVICE_WRITE: &str = "the user that keyward runs as must be able to write in that folder";
const ADVICE_SPACE: &str = "check its file system for free space and errors";

fn step<'a>(path: &'a Path, step: &'static str, advice: &'static str) -> impl FnOnce(io::Error) -> ReplaceError + 'a {
    move |source| ReplaceError::Step { step, path: path.to_owned(), advice, source }
}

/// Returns the name of the folder that the symlink leads to; `None` without one.
fn current_version(parent: &Dir, name: &OsStr, path: &Path) -> Result<Option<OsString>, ReplaceError> {
    let advice = "the user that keyward runs as must be able to enter its folder";
    let stat = parent.stat(Path::new(name)).map_err(step(path, "look at", advice))?;
    let Some(stat) = stat else { return Ok(None) };
    let refuse = |found| Err(ReplaceError::NotVersioned { path: path.to_owned(), found });
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {}
        FileType::Directory => return refuse("a folder"),
        FileType::RegularFile => return refuse("a file"),
        _ => return refuse("neither a folder nor a file"),
    }
    let target = rustix::fs::readlinkat(parent, name, Vec::new())
        .map_err(|errno| step(path, "read the symlink", ADVICE_WRITE)(errno.into()))?;
    let target = OsString::from_vec(target.into_bytes());
    if is_temporary_of(name, &target) { Ok(Some(target)) } else { refuse("a symlink to something else") }
}

fn open_version(path: &Path) -> Option<OwnedFd> {
    let (parent, name) = Dir::open_parent(path).ok()?;
    let version = current_version(&parent, &name, path).ok().flatten()?;
    rustix::fs::openat(&parent, version, OPEN, Mode::empty()).ok()
}

/// Returns true if a folder has exactly these files with these attributes.
fn holds(parent: &Dir, version: &OsStr, path: &Path, files: &[(&str, &[u8])], attributes: &Attributes) -> bool {
    let Ok(folder) = rustix::fs::openat(parent, version, OPEN, Mode::empty()) else { return false };
    let stat = rustix::fs::fstat(&folder);
    let has_mode = stat
        .is_ok_and(|stat| stat.st_mode & 0o7777 == FOLDER_MODE && stat.st_uid == rustix::process::geteuid().as_raw());
    let names: Vec<_> = list(&folder).collect();
    let folder = Dir::from(folder);
    has_mode
        && names.len() == files.len()
        && files.iter().all(|(file, bytes)| atomic_file::is_current_in(&folder, &path.join(file), bytes, attributes))
}

/// Returns true if all files of a folder have these attributes.
fn has_rights(parent: &Dir, version: &OsStr, path: &Path, attributes: &Attributes) -> bool {
    let Ok(folder) = rustix::fs::openat(parent, version, OPEN, Mode::empty()) else { return false };
    let names: Vec<_> = list(&folder).collect();
    let folder = Dir::from(folder);
    names.iter().all(|name| {
        let bytes = atomic_file::read_in(&folder, name, MAX_KEPT);
        bytes.is_some_and(|bytes| atomic_file::is_current_in(&folder, &path.join(name), &bytes, attributes))
    })
}

/// Greatest file of a previous folder that is kept, in bytes.
const MAX_KEPT: usize = 1 << 20;

/// Removes the folders and leftovers of this name but those to keep.
fn remove_others(parent: &Dir, name: &OsStr, kept: &[Option<OsString>]) -> usize {
    let is_kept = |version: &OsString| kept.iter().flatten().any(|kept| kept == version);
    versions(parent, name).filter(|version| !is_kept(version)).filter(|version| remove_version(parent, version)).count()
}

/// Lists the folders and temporary symlinks of this name.
fn versions<'a>(parent: &'a Dir, name: &'a OsStr) -> impl Iterator<Item = OsString> + 'a {
    let folder = rustix::fs::openat(parent, ".", OPEN, Mode::empty()).ok();
    let names: Vec<_> = folder.iter().flat_map(list).collect();
    names.into_iter().filter(move |entry| is_temporary_of(name, entry))
}

fn list(folder: &OwnedFd) -> impl Iterator<Item = OsString> {
    let entries = rustix::fs::Dir::read_from(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
    names.filter(|name| name != "." && name != "..").collect::<Vec<_>>().into_iter()
}

/// Time of the last change of a folder; `None` for something else.
fn modified(parent: &Dir, version: &OsStr) -> Option<(i64, i64)> {
    let stat = parent.stat(Path::new(version)).ok().flatten()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    is_folder.then_some((stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)))
}

/// Removes a folder of files, or a symlink. A folder of another user, and one that holds a folder, stays.
fn remove_version(parent: &Dir, version: &OsStr) -> bool {
    match rustix::fs::openat(parent, version, OPEN, Mode::empty()) {
        Ok(folder) => {
            for file in list(&folder) {
                let _ = rustix::fs::unlinkat(&folder, file, AtFlags::empty());
            }
            rustix::fs::unlinkat(parent, version, AtFlags::REMOVEDIR).is_ok()
        }
        // A symlink. A regular file may be that of a writer under way, which `atomic_file::sweep` can tell.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            let stat = parent.stat(Path::new(version)).ok().flatten();
            stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
                && rustix::fs::unlinkat(parent, version, AtFlags::empty()).is_ok()
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
