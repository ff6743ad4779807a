//! Opens files only if they are inside a folder after all symlinks are resolved.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens the file at `path` for reading if it is inside `folder` after all symlinks are resolved. `folder` itself may
/// be named through symlinks. Never blocks, as opening a FIFO would.
///
/// # Errors
/// The file cannot be opened, or the way to it leads out of the folder ([`io::ErrorKind::PermissionDenied`]).
pub(crate) fn open_beneath(folder: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..ATTEMPTS {
        let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&root, path, READ, Mode::empty(), flags) {
            Ok(file) => return Ok(file),
            Err(Errno::XDEV) => return Err(escape_error()),
            // The kernel returns EAGAIN when a rename elsewhere in the tree races with the lookup.
            Err(Errno::AGAIN) => {}
            // Kernels before 5.6 lack the call, and some sandboxes refuse it.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return walk_beneath(root, path),
            Err(errno) => return Err(errno.into()),
        }
    }
    walk_beneath(root, path)
}

/// Resolves the path one component at a time, for kernels without `openat2`.
fn walk_beneath(root: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut folders = vec![root];
    // A stack: the next component is its last.
    let mut remaining = vec![path.to_owned()];
    let mut hops = 0;
    while let Some(next) = remaining.pop() {
        let mut components = next.components();
        let Some(first) = components.next() else { continue };
        let rest = components.as_path();
        if !rest.as_os_str().is_empty() {
            remaining.push(rest.to_owned());
        }
        let name = match first {
            Component::Normal(name) => Path::new(name),
            Component::CurDir => continue,
            Component::ParentDir if folders.len() > 1 => {
                folders.pop();
                continue;
            }
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(escape_error()),
        };
        let here = folders.last().map_or(CWD, |folder| folder.as_fd());
        let entry = rustix::fs::openat(here, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&entry)?.st_mode);
        if kind == FileType::Symlink {
            hops += 1;
            if hops > MAX_HOPS {
                return Err(Errno::LOOP.into());
            }
            let target = rustix::fs::readlinkat(&entry, "", Vec::new())?;
            remaining.push(PathBuf::from(OsString::from_vec(target.into_bytes())));
        } else if remaining.iter().all(|part| part.as_os_str().is_empty()) {
            return Ok(rustix::fs::openat(here, name, READ | OFlags::NOFOLLOW, Mode::empty())?);
        } else if kind == FileType::Directory {
            folders.push(entry);
        } else {
            return Err(Errno::NOTDIR.into());
        }
    }
    Err(Errno::ISDIR.into())
}

fn escape_error() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "a symlink leads out of the folder")
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Number of tries before the fallback, as in the kernel's own library.
const ATTEMPTS: u32 = 128;

/// Number of symlinks that the kernel follows in one path.
const MAX_HOPS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_symlink_inside_the_folder_is_followed_and_one_that_leads_out_is_not() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        std::fs::create_dir_all(folder.join("..1")).unwrap();
        std::fs::write(outer.path().join("secret"), "out").unwrap();
        std::fs::write(folder.join("..1/motd"), "in").unwrap();
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/motd", folder.join("motd")).unwrap();
        symlink("../secret", folder.join("up")).unwrap();
        symlink(outer.path().join("secret"), folder.join("away")).unwrap();
        symlink(outer.path(), folder.join("outside")).unwrap();
        symlink("../in/..1/motd", folder.join("round")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        symlink(&folder, outer.path().join("named")).unwrap();
        let text = |file: io::Result<OwnedFd>| {
            let mut text = String::new();
            std::fs::File::from(file?).read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        let walked = |path: &str| {
            let root = rustix::fs::open(&folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            walk_beneath(root, Path::new(path))
        };
        for path in ["motd", "..1/motd", "./..data/motd", "..data/../motd"] {
            assert_eq!(text(open_beneath(&folder, Path::new(path))).unwrap(), "in", "{path}");
            assert_eq!(text(open_beneath(&outer.path().join("named"), Path::new(path))).unwrap(), "in", "{path}");
            assert_eq!(text(walked(path)).unwrap(), "in", "{path}");
        }
        for path in ["up", "away", "outside/secret", "round", "../secret", "/etc/hostname"] {
            for found in [open_beneath(&folder, Path::new(path)), walked(path)] {
                assert_eq!(found.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path}");
            }
        }
        for path in ["loop", "none", "motd/none"] {
            assert!(open_beneath(&folder, Path::new(path)).is_err() && walked(path).is_err(), "{path}");
        }
    }
}
