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
    /// Results of lookups, by id.
    found: Mutex<HashMap<u64, FoundCgroup>>,
}

/// Result of a lookup.
#[derive(Debug)]
struct FoundCgroup {
    /// Path; `None` for an id that is not in the tree.
    path: Option<Arc<str>>,
    /// User of the process for which the lookup was made.
    uid: Option<u32>,
}

/// Result of a lookup that blocks for a few system calls at most.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CgroupLookup {
    /// The path; `None` for an id that is not in the tree: it lies outside this process's cgroup namespace.
    Known(Option<Arc<str>>),
    /// Only a search of the tree tells.
    Unknown,
}

/// Number of results that are remembered.
const MAX_CACHED: usize = 4096;

/// Maximum number of cgroups that a search visits: more than a full node has.
const MAX_VISITED: usize = 50_000;

impl CgroupTree {
    pub(super) fn new(mount: Option<PathBuf>) -> Self {
        Self { mount, found: Mutex::default() }
    }

    /// Returns the path of a cgroup without a search. `pid` is a process in it, if its files in `/proc` may be readable; `uid`
    /// is its user.
    pub(super) fn lookup(&self, id: u64, pid: Option<u32>, uid: Option<u32>) -> CgroupLookup {
        let Some(mount) = self.mount.as_deref() else { return CgroupLookup::Known(None) };
        if let Some(cgroup) = self.found.lock().get(&id) {
            return CgroupLookup::Known(cgroup.path.clone());
        }
        // `/proc` may be hidden, or the process may have moved; the inode proves the path either way.
        let proc_path = pid.and_then(|pid| procfs::cgroup(pid).ok().flatten()).filter(|path| has_id(mount, path, id));
        match proc_path {
            Some(path) => CgroupLookup::Known(self.remember(id, Some(path.into()), uid)),
            None => CgroupLookup::Unknown,
        }
    }

    /// Searches the tree for a cgroup of a process of this user. Blocks for as long as the tree is large.
    pub(super) fn search(&self, id: u64, uid: Option<u32>) -> Option<Arc<str>> {
        let path = search(self.mount.as_deref()?, id).ok()?;
        self.remember(id, path.map(Into::into), uid)
    }

    fn remember(&self, id: u64, path: Option<Arc<str>>, uid: Option<u32>) -> Option<Arc<str>> {
        let mut found = self.found.lock();
        if found.len() >= MAX_CACHED {
            forget_one_user(&mut found);
        }
        found.insert(id, FoundCgroup { path: path.clone(), uid });
        path
    }
}

/// Forgets the results of the user with the most of them, so that nobody makes others' cgroups be searched for again.
fn forget_one_user(found: &mut HashMap<u64, FoundCgroup>) {
    let mut counts: HashMap<Option<u32>, usize> = HashMap::new();
    for cgroup in found.values() {
        *counts.entry(cgroup.uid).or_default() += 1;
    }
    if let Some((most, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
        found.retain(|_, cgroup| cgroup.uid != most);
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
        assert_eq!(tree.lookup(worker, None, None), CgroupLookup::Unknown);
        let path = "/system.slice/nginx.service/worker";
        assert_eq!(tree.search(worker, Some(1)).as_deref(), Some(path));
        assert_eq!(tree.search(id(root.path()), None).as_deref(), Some("/"));
        std::fs::remove_dir_all(root.path().join("system.slice")).unwrap();
        assert_eq!(tree.lookup(worker, None, None), CgroupLookup::Known(Some(path.into())));
        let stranger = tempfile::tempdir().unwrap();
        assert_eq!(tree.search(id(stranger.path()), None), None, "outside the tree");
        assert_eq!(tree.lookup(id(stranger.path()), Some(std::process::id()), None), CgroupLookup::Known(None));
        assert_eq!(CgroupTree::new(None).lookup(worker, None, None), CgroupLookup::Known(None));
    }

    #[test]
    fn a_user_with_many_cgroups_has_only_its_own_forgotten() {
        let tree = CgroupTree::new(Some("/".into()));
        tree.remember(1, Some("/system.slice/nginx.service".into()), Some(33));
        for id in 2..20_000 {
            tree.remember(id, Some("/user.slice/x".into()), Some(1000));
        }
        assert!(tree.found.lock().len() <= MAX_CACHED);
        assert_eq!(tree.lookup(1, None, None), CgroupLookup::Known(Some("/system.slice/nginx.service".into())));
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
            assert_eq!(tree.search(id, None).as_deref(), Some(path.as_str()));
        }
        let stranger = tempfile::tempdir().unwrap();
        let id = std::fs::metadata(stranger.path()).unwrap().ino();
        assert_eq!(search(root.path(), id).unwrap(), None, "the rest of the tree was searched");
    }
}
