//! Watches the files that a session's login reads: a change of one ends the wait after a failed login.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::file_watch::FileWatch;
use parking_lot::Mutex;

/// Files of a login, and their states when it last began. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct CredentialFiles(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    paths: Vec<PathBuf>,
    /// `None` unless a login is in flight or has failed: a machine has few inotify instances.
    watched: Mutex<Option<Watched>>,
}

#[derive(Debug)]
struct Watched {
    watch: Arc<FileWatch>,
    states: Vec<Option<FileState>>,
}

/// Device, inode, size, time of the last change of content, and of the inode.
type FileState = (u64, u64, u64, (i64, i64), (i64, i64));

impl CredentialFiles {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self(Arc::new(Inner { paths, watched: Mutex::new(None) }))
    }

    /// Records the states of the files. Call it before a login reads them, so that no later change is missed.
    pub(super) async fn record(&self) {
        if self.0.paths.is_empty() {
            return;
        }
        let watch = self.watch().unwrap_or_else(|| {
            Arc::new(FileWatch::new(|error| {
                tracing::warn!(
                    event = "session.files.unwatched",
                    error = error.to_string(),
                    "a change of the files of a login is not detected before its next attempt; raise \
                 fs.inotify.max_user_instances"
                );
            }))
        });
        let states = self.examine(&watch).await;
        *self.0.watched.lock() = Some(Watched { watch, states });
    }

    /// Waits until one of the files is there with another state than the recorded one; forever if nothing is recorded.
    /// A file that was deleted is no change: a login may consume it.
    pub(super) async fn changed(&self) {
        loop {
            let Some(watch) = self.watch() else { return std::future::pending().await };
            // Examined first, since an event that was read before this future was dropped does not come again.
            let states = self.examine(&watch).await;
            if self.update(states) {
                return;
            }
            watch.changed().await;
            // A writer that replaces several files, or truncates one first, is given the time to complete.
            tokio::time::sleep(SETTLE_TIME).await;
        }
    }

    /// Ends the watch: the login has succeeded.
    pub(super) fn release(&self) {
        *self.0.watched.lock() = None;
    }

    fn watch(&self) -> Option<Arc<FileWatch>> {
        self.0.watched.lock().as_ref().map(|watched| Arc::clone(&watched.watch))
    }

    /// Follows the files' symlinks, which may have changed, and returns the files' states.
    async fn examine(&self, watch: &Arc<FileWatch>) -> Vec<Option<FileState>> {
        let inner = Arc::clone(&self.0);
        let watch = Arc::clone(watch);
        let examine = move || {
            for path in &inner.paths {
                // A folder of CA certificates changes when a file in it does.
                watch.follow(&if path.is_dir() { path.join("any") } else { path.clone() });
            }
            inner.paths.iter().map(|path| state(path)).collect()
        };
        // A disk that hangs must not block the runtime.
        tokio::task::spawn_blocking(examine).await.unwrap_or_default()
    }

    fn update(&self, states: Vec<Option<FileState>>) -> bool {
        let mut watched = self.0.watched.lock();
        let Some(watched) = watched.as_mut() else { return false };
        let is_changed = states.iter().zip(&watched.states).any(|(new, old)| new.is_some() && new != old);
        if is_changed {
            watched.states = states;
        }
        is_changed
    }
}

fn state(path: &Path) -> Option<FileState> {
    let file = std::fs::metadata(path).ok()?;
    let modified = (file.mtime(), file.mtime_nsec());
    let changed = (file.ctime(), file.ctime_nsec());
    Some((file.dev(), file.ino(), file.len(), modified, changed))
}

const SETTLE_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    async fn is_changed(files: &CredentialFiles) -> bool {
        tokio::time::timeout(Duration::from_secs(2), files.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_replaced_file_and_a_swapped_symlink_are_changes_and_a_deleted_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["..1", "..2"] {
            std::fs::create_dir(path(version)).unwrap();
            std::fs::write(path(version).join("jwt"), version).unwrap();
        }
        symlink("..1", path("..data")).unwrap();
        symlink("..data/jwt", path("jwt")).unwrap();
        std::fs::write(path("secret"), "one").unwrap();
        let files = CredentialFiles::new(vec![path("jwt"), path("secret"), path("later/file")]);
        assert!(!is_changed(&files).await, "nothing is recorded");
        files.record().await;
        assert!(!is_changed(&files).await);
        // As kubelet does.
        symlink("..2", path("..new")).unwrap();
        std::fs::rename(path("..new"), path("..data")).unwrap();
        assert!(is_changed(&files).await, "a swapped symlink");
        assert!(!is_changed(&files).await, "reported once");
        std::fs::remove_file(path("secret")).unwrap();
        assert!(!is_changed(&files).await, "a consumed file");
        std::fs::write(path("secret"), "two").unwrap();
        assert!(is_changed(&files).await, "a new file");
        std::fs::create_dir(path("later")).unwrap();
        std::fs::write(path("later/file"), "x").unwrap();
        assert!(is_changed(&files).await, "a file of a new folder");
        std::fs::write(path("other"), "x").unwrap();
        assert!(!is_changed(&files).await, "another file of the folder");
        files.release();
        std::fs::write(path("secret"), "three").unwrap();
        assert!(!is_changed(&files).await, "released");
    }
}
