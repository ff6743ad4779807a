//! Watches the folders of a file for changes (inotify(7)).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::os;

/// Watches the folders of a path and of each symlink that it leads through.
#[derive(Debug)]
pub struct FileWatch {
    /// `None` if no inotify instance could be created.
    events: Option<AsyncFd<OwnedFd>>,
    flags: WatchFlags,
}

impl FileWatch {
    /// Creates a watch on nothing yet. If the system has no inotify instance left, `on_error` is called with the error
    /// and the watch never notifies.
    pub fn new(on_error: impl FnOnce(&io::Error)) -> Self {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let events = inotify::init(flags).map_err(io::Error::from).and_then(os::readable);
        if let Err(error) = &events {
            on_error(error);
        }
        Self { events: events.ok(), flags: CHANGES }
    }

    /// Creates a watch like [`FileWatch::new`] that also notifies of each write to a file that stays open.
    pub fn new_with_writes(on_error: impl FnOnce(&io::Error)) -> Self {
        Self { flags: CHANGES | WatchFlags::MODIFY, ..Self::new(on_error) }
    }

    /// Watches the folders that the path leads through now: a symlink may have changed since the last call.
    pub fn follow(&self, path: &Path) {
        let Some(events) = &self.events else { return };
        for folder in folders(path) {
            // A missing folder is tried again when the file is next read; a folder above it shows when it is created.
            let mut above = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
            above.find(|folder| inotify::add_watch(events.get_ref(), *folder, self.flags) != Err(Errno::NOENT));
        }
    }

    /// Waits for a change in one of the folders; forever if nothing can be watched.
    pub async fn changed(&self) {
        let Some(events) = &self.events else { return std::future::pending().await };
        // The events themselves say nothing that counts: the caller reads its files again.
        let drain = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut [0_u8; 4096])?);
        if events.async_io(Interest::READABLE, drain).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Kubernetes updates a mounted secret by replacing a symlink beside it; other files may be rewritten in place.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// Lists the folders of a path, of each symlink that it leads through, and of the final file. A change of the file is a
/// change in one of them.
fn folders(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders: BTreeSet<PathBuf> = path.parent().map(Path::to_owned).into_iter().collect();
    let mut at = PathBuf::new();
    let mut rest = path.to_owned();
    let mut links = 0;
    loop {
        let mut parts = rest.components();
        let Some(part) = parts.next() else { break };
        let remaining = parts.as_path().to_owned();
        if part == Component::ParentDir {
            at.pop();
        } else {
            // `join` with an absolute path replaces the base.
            let next = at.join(part);
            if links < MAX_LINKS
                && let Ok(target) = std::fs::read_link(&next)
            {
                links += 1;
                folders.insert(at.clone());
                rest = target.join(remaining);
                continue;
            }
            at = next;
        }
        rest = remaining;
    }
    folders.extend(at.parent().map(Path::to_owned));
    folders
}

/// Number of symlinks that the kernel follows (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_followed_through_all_its_symlinks() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for inner in ["a", "b", "c/..1"] {
            std::fs::create_dir_all(root.join(inner)).unwrap();
        }
        std::fs::write(root.join("c/..1/token"), "x").unwrap();
        symlink("..1", root.join("c/..data")).unwrap();
        symlink("..data/token", root.join("c/token")).unwrap();
        symlink(root.join("c/token"), root.join("b/token")).unwrap();
        symlink("../b/./token", root.join("a/token")).unwrap();
        symlink("loop", root.join("a/loop")).unwrap();
        let check = |name: &str, expected: &[&str]| {
            let expected: BTreeSet<_> = expected.iter().map(|inner| root.join(inner)).collect();
            assert_eq!(folders(&root.join(name)), expected, "{name}");
        };
        check("a/token", &["a", "b", "c", "c/..1"]);
        check("c/..1/token", &["c/..1"]);
        check("a/missing", &["a"]);
        check("a/loop", &["a"]);
    }
}
