//! Paths of cgroups by their ids. The id of a cgroup is the inode of its folder, which is never used again while the machine
//! runs (on 64 bits), so a path that was found stays right.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::procfs;

/// The cgroups of version 2, looked up by id.
#[derive(Debug)]
pub(super) struct CgroupTree {
    /// Mount point; `None` if this process sees no cgroups of version 2.
    mount: Option<PathBuf>,
    /// Paths that were found; `None` for an id that is not in the tree: it lies outside this process's cgroup namespace.
    paths: Mutex<HashMap<u64, Option<Arc<str>>>>,
}

/// Number of ids that are remembered.
const MAX_CACHED: usize = 4096;

/// Maximum number of cgroups that a search visits: more than a full node has.
const MAX_VISITED: usize = 50_000;

impl CgroupTree {
    pub(super) fn new(mount: Option<PathBuf>) -> Self {
        Self { mount, paths: Mutex::default() }
    }

    /// Returns the path of a cgroup. `pid` is a process in it, if its files in `/proc` may be readable.
    pub(super) fn path(&self, id: u64, pid: Option<u32>) -> Option<Arc<str>> {
        let mount = self.mount.as_deref()?;
        if let Some(path) = self.paths.lock().get(&id) {
            return path.clone();
        }
        // `/proc` may be hidden, or the process may have moved; the inode proves the path either way.
        let proc_path = pid.and_then(|pid| procfs::cgroup(pid).ok().flatten()).filter(|path| has_id(mount, path, id));
        let path = match proc_path {
            Some(path) => Some(path),
            None => search(mount, id).ok()?,
        };
        let path: Option<Arc<str>> = path.map(Into::into);
        let mut paths = self.paths.lock();
        if paths.len() >= MAX_CACHED {
            paths.clear();
        }
        paths.insert(id, path.clone());
        path
    }
}

fn has_id(mount: &Path, path: &str, id: u64) -> bool {
    let folder = mount.join(path.trim_start_matches('/'));
    std::fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir() && metadata.ino() == id)
}

/// Searches the tree for the folder with this inode, level by level: users may own parts of the tree, and however many cgroups
/// they make below, those above are found first.
fn search(mount: &Path, id: u64) -> io::Result<Option<String>> {
    if std::fs::symlink_metadata(mount)?.ino() == id {
        return Ok(Some("/".to_owned()));
    }
    let mut pending = VecDeque::from([String::new()]);
    for _ in 0..MAX_VISITED {
        let Some(next) = pending.pop_front() else { return Ok(None) };
        let entries = match std::fs::read_dir(mount.join(next.trim_start_matches('/'))) {
            Ok(entries) => entries,
            Err(error) if !next.is_empty() && is_folder_error(&error) => continue,
            Err(error) => return Err(error),
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{next}/{name}");
            if entry.ino() == id {
                return Ok(Some(path));
            }
            pending.push_back(path);
        }
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

/// Returns true for errors of one folder alone: it was removed since its parent was read, or its owner has closed it, or has
/// made its path too long. Whoever owns a part of the tree must not hide the rest of it.
fn is_folder_error(error: &io::Error) -> bool {
    let own = [Errno::NOENT, Errno::NODEV, Errno::ACCESS, Errno::PERM, Errno::NAMETOOLONG];
    Errno::from_io_error(error).is_some_and(|errno| own.contains(&errno))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    use super::*;

    #[test]
    fn a_cgroup_is_found_by_its_inode_and_remembered() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("system.slice/nginx.service/worker");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(root.path().join("user.slice")).unwrap();
        let id = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let tree = CgroupTree::new(Some(root.path().to_owned()));
        let worker = id(&folder);
        assert_eq!(tree.path(worker, None).as_deref(), Some("/system.slice/nginx.service/worker"));
        assert_eq!(tree.path(id(root.path()), None).as_deref(), Some("/"));
        std::fs::remove_dir_all(root.path().join("system.slice")).unwrap();
        assert_eq!(tree.path(worker, None).as_deref(), Some("/system.slice/nginx.service/worker"));
        let stranger = tempfile::tempdir().unwrap();
        assert_eq!(tree.path(id(stranger.path()), Some(std::process::id())), None, "outside the tree");
        assert_eq!(CgroupTree::new(None).path(worker, None), None);
    }

    #[test]
    fn a_folder_that_cannot_be_read_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        // Beyond the longest path, which root cannot read either. Several, as folders are listed in any order.
        for start in ["a", "m", "z"] {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let mut folder = rustix::fs::open(root.path(), flags, Mode::empty()).unwrap();
            for _ in 0..20 {
                let name = start.repeat(250);
                mkdirat(&folder, &name, Mode::RWXU).unwrap();
                folder = openat(&folder, &name, flags, Mode::empty()).unwrap();
            }
        }
        let tree = CgroupTree::new(Some(root.path().to_owned()));
        for unit in 0..12 {
            let path = format!("/{unit}.service/worker");
            let folder = root.path().join(&path[1..]);
            std::fs::create_dir_all(&folder).unwrap();
            let id = std::fs::metadata(&folder).unwrap().ino();
            assert_eq!(tree.path(id, None).as_deref(), Some(path.as_str()));
        }
        let stranger = tempfile::tempdir().unwrap();
        let id = std::fs::metadata(stranger.path()).unwrap().ino();
        assert_eq!(search(root.path(), id).unwrap(), None, "the rest of the tree was searched");
    }
}
