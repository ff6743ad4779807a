//! Files of the state folder, whose writes keep their order.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::atomic_file::{Attributes, replace, sweep_and_log};

/// A file of the state folder.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Number of the last write that was started.
    started: AtomicU64,
    /// Number of the newest write that was finished.
    finished: Mutex<u64>,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, started: AtomicU64::new(0), finished: Mutex::new(0) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads at most `largest` bytes of a regular file, following no symlink; returns `None` if there is no file.
    ///
    /// Removes temporary files of interrupted writes beside it. Blocks.
    pub(super) fn read(&self, largest: u64) -> std::io::Result<Option<Zeroizing<Vec<u8>>>> {
        sweep_and_log(&self.path);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => std::fs::File::from(opened?),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let size = usize::try_from(metadata.len().min(largest)).unwrap_or_default();
        let mut bytes = Zeroizing::new(Vec::with_capacity(size));
        file.take(largest).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns the write that replaces the file with mode 0600, unless one that was started later has done so.
    pub(super) fn write(
        self: &Arc<Self>,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + use<> {
        let (file, order) = (Arc::clone(self), self.started.fetch_add(1, Ordering::Relaxed) + 1);
        async move {
            let mut finished = file.finished.lock().await;
            if *finished >= order {
                return Ok(());
            }
            let replaced = Arc::clone(&file);
            let attributes = Attributes { mode: 0o600, owner: None, group: None };
            tokio::task::spawn_blocking(move || replace(&replaced.path, &bytes, &attributes)).await??;
            *finished = order;
            Ok(())
        }
    }

    /// Renames the file to `FILE.refused`, replacing an earlier one, and returns the new path. Blocks.
    pub(super) fn move_aside(&self) -> std::io::Result<PathBuf> {
        let mut moved_to = self.path.clone().into_os_string();
        moved_to.push(".refused");
        let moved_to = PathBuf::from(moved_to);
        std::fs::rename(&self.path, &moved_to)?;
        Ok(moved_to)
    }
}
