//! Opens folders by descriptor, so that they cannot be swapped between two uses, and follows no symlink that users other
//! than root could have placed. [`resolve`] also follows those of one user.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// An open folder. Names are resolved relative to its descriptor, whatever happens to its path.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// The folder is missing, is not a folder or cannot be searched, or its path contains a symlink that users other
    /// than root could have placed.
    pub fn open(path: &Path) -> Result<Self, DirError> {
        Self::walk(path, ROOT, Missing::Refuse).map(|(folder, _)| folder)
    }

    /// Opens the folder at `path`, and creates it and those above it if `missing` says so.
    ///
    /// # Errors
    /// As [`Dir::open`]; a folder cannot be created. None is created behind a symlink that is not followed.
    pub fn open_or_create(path: &Path, missing: Missing) -> Result<Self, DirError> {
        Self::walk(path, ROOT, missing).map(|(folder, _)| folder)
    }

    /// Opens the folder at `path`, which is `base` or below it, as [`Dir::open_or_create`] does, but follows no symlink below
    /// `base`, whoever placed it: what `base` allows ends there. `base` itself is not created.
    ///
    /// # Errors
    /// As [`Dir::open_or_create`]; `path` is not below `base`, has `..` in it or leads through a symlink.
    pub fn open_below(base: &Path, path: &Path, missing: Missing) -> Result<Self, DirError> {
        let inner = path.strip_prefix(base).map_err(|_| DirError::NoFile { path: path.to_owned() })?;
        let mut here = Self::open(base)?;
        for component in inner.components() {
            let Component::Normal(name) = component else { return Err(DirError::NoFile { path: path.to_owned() }) };
            let name = Path::new(name);
            match missing.enter(here.as_fd(), name) {
                Ok(folder) => here = Self(folder),
                Err(Errno::NOTDIR | Errno::LOOP) if here.has_symlink(name) => {
                    return Err(DirError::Below { base: base.to_owned() });
                }
                Err(errno) => return Err(missing.error(path, errno)),
            }
        }
        Ok(here)
    }

    fn has_symlink(&self, name: &Path) -> bool {
        let stat = self.stat(name).ok().flatten();
        stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// Opens the folder at `path`, also through symlinks that only root and `user` could have placed, and returns it with its path
    /// without symlinks.
    fn walk(path: &Path, user: u32, missing: Missing) -> Result<(Self, PathBuf), DirError> {
        let fail = |source: Errno| missing.error(path, source);
        // A stack: the next component is its last.
        let mut remaining = vec![if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }];
        let mut hops = 0;
        let mut here: Option<OwnedFd> = None;
        let mut resolved = PathBuf::new();
        while let Some(next) = remaining.pop() {
            let mut components = next.components();
            let Some(first) = components.next() else { continue };
            let rest = components.as_path();
            if !rest.as_os_str().is_empty() {
                remaining.push(rest.to_owned());
            }
            let name = match first {
                Component::RootDir => Path::new("/"),
                other => Path::new(other.as_os_str()),
            };
            let from = here.as_ref().map_or(CWD, AsFd::as_fd);
            match missing.enter(from, name) {
                Ok(descriptor) => {
                    here = Some(descriptor);
                    match first {
                        Component::ParentDir => {
                            resolved.pop();
                        }
                        Component::CurDir => {}
                        other => resolved.push(other),
                    }
                }
                // With O_NOFOLLOW and O_DIRECTORY the kernel reports a symlink as "not a directory".
                Err(Errno::NOTDIR | Errno::LOOP) if hops < MAX_HOPS => {
                    let link = trusted_link(from, name, user).map_err(fail)?;
                    remaining
                        .push(link.ok_or_else(|| DirError::Symlink { path: path.to_owned(), link: name.to_owned() })?);
                    hops += 1;
                }
                Err(errno) => return Err(fail(errno)),
            }
        }
        here.map(|descriptor| (Self(descriptor), resolved)).ok_or_else(|| fail(Errno::NOENT))
    }

    /// Opens the parent folder of `path` and returns it with the file's name.
    pub fn open_parent(path: &Path) -> Result<(Self, OsString), DirError> {
        let (parent, name) = Self::split(path)?;
        Ok((Self::open(parent)?, name.to_owned()))
    }

    /// Splits the path of a file into its folder and its name.
    pub fn split(path: &Path) -> Result<(&Path, &OsStr), DirError> {
        let ends_in_name = path.components().next_back().is_some_and(|last| matches!(last, Component::Normal(_)));
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if ends_in_name => Ok((parent, name)),
            _ => Err(DirError::NoFile { path: path.to_owned() }),
        }
    }

    /// Returns the metadata of `name` without following a symlink; `None` if it does not exist.
    pub fn stat(&self, name: &Path) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Syncs the folder, so that renames and removals in it survive a loss of power.
    pub fn sync(&self) -> io::Result<()> {
        match rustix::fs::openat(&self.0, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            // Some file systems (FUSE, 9p) have no way to sync a folder.
            Ok(folder) => match rustix::fs::fsync(folder) {
                Err(Errno::INVAL) => Ok(()),
                other => Ok(other?),
            },
            // The folder may be written but not listed: the file is synced, its name is left to the kernel.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Reaction to a folder that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It is an error.
    Refuse,
    /// It is created with mode 0755, less the umask.
    Create,
}

impl Missing {
    /// Opens the folder `name` of `folder`, which is not a symlink, and creates it first if it is to be.
    fn enter(self, folder: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
        let open = || rustix::fs::openat(folder, name, OPEN_FOLDER, Mode::empty());
        match open() {
            Err(Errno::NOENT) if self == Self::Create => {
                match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o755)) {
                    // Somebody else has created something of that name: the second open decides what it is.
                    Ok(()) | Err(Errno::EXIST) => open(),
                    Err(errno) => Err(errno),
                }
            }
            other => other,
        }
    }

    fn error(self, path: &Path, errno: Errno) -> DirError {
        let (path, source) = (path.to_owned(), errno.into());
        match self {
            Self::Refuse => DirError::Open { path, source },
            Self::Create => DirError::Create { path, source },
        }
    }
}

/// Creates the folder with mode 0700 if it is missing and returns its canonical path. An existing folder must not have
/// any of the mode bits `refused`, such as `0o022`.
pub fn create_private(path: &Path, refused: u32) -> Result<PathBuf, DirError> {
    let fail = |source| DirError::Create { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail)?;
    let path = path.canonicalize().map_err(fail)?;
    let mode = path.metadata().map_err(fail)?.permissions().mode() & 0o7777;
    if mode & refused == 0 { Ok(path) } else { Err(DirError::Exposed { path, mode, required_mode: mode & !refused }) }
}

/// Returns the path of the folder at an absolute path without symlinks, of which only root and `user` could have placed any. It is
/// built while the folders are opened: another look-up could follow a symlink that somebody has placed since.
pub fn resolve(path: &Path, user: u32) -> Result<PathBuf, DirError> {
    Dir::walk(path, user, Missing::Refuse).map(|(_, resolved)| resolved)
}

impl From<OwnedFd> for Dir {
    /// Takes an open folder.
    fn from(folder: OwnedFd) -> Self {
        Self(folder)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

// O_PATH needs no right to read the folder (open(2)): one that may be searched but not listed can be used.
const OPEN_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Id of root.
const ROOT: u32 = 0;

/// Number of symlinks that the kernel follows in one path.
const MAX_HOPS: u32 = 40;

/// Returns the target of the symlink `name` if only root and `user` could have placed it: the link is theirs, in a folder of
/// theirs that no other user may write, such as `/var/run`.
fn trusted_link(folder: BorrowedFd<'_>, name: &Path, user: u32) -> Result<Option<PathBuf>, Errno> {
    let link = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
        return Err(Errno::NOTDIR);
    }
    let parent_stat = rustix::fs::statat(folder, ".", AtFlags::SYMLINK_NOFOLLOW)?;
    let is_trusted = |owner: u32| owner == ROOT || owner == user;
    if !is_trusted(link.st_uid) || !is_trusted(parent_stat.st_uid) || parent_stat.st_mode & 0o022 != 0 {
        return Ok(None);
    }
    let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
    Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes()))))
}

impl DirError {
    /// Returns true if the folder does not exist, as opposed to being inaccessible.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Reason why a folder was not opened.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The system refused.
    #[error("cannot open the folder {}; it must be there, and the user that keyward runs as must be able to enter it", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A symlink that could be an attacker's.
    #[error(
        "{} leads through the symlink {}, which users other than root could have created; use the folder that it points to",
        path.display(), link.display()
    )]
    Symlink {
        /// The folder.
        path: PathBuf,
        /// The component that is a symlink.
        link: PathBuf,
    },
    /// A symlink below a folder that no path may leave. Neither path nor symlink are named, as they may be computed from secrets.
    #[error("the path leads through a symlink below {}, which is not followed; use the folder that it points to", base.display())]
    Below {
        /// The folder that the path must not leave.
        base: PathBuf,
    },
    /// It cannot be created.
    #[error("cannot create the folder {}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users than its owner have too many rights on it.
    #[error("{} is accessible to other users (mode {mode:04o}); run `chmod {required_mode:o}` on it or use another folder", path.display())]
    Exposed {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Required mode.
        required_mode: u32,
    },
    /// The path has no file name (such as `/` or `..`).
    #[error("{} does not name a file", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests;
