//! A file of the state folder as bytes. Of concurrent writes the newest wins.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use tokio::sync::Mutex;

use keyward_machine::atomic_file::{Attributes, ReplaceError, replace, sweep_and_log};

/// A file of the state folder.
#[derive(Debug)]
pub(super) struct OrderedFile {
    path: PathBuf,
    /// Number of the last write that was started.
    started: AtomicU64,
    /// Number of the newest write that was finished.
    finished: Arc<Mutex<u64>>,
}

impl OrderedFile {
    pub(super) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, started: AtomicU64::new(0), finished: Arc::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads at most `largest` bytes of a regular file, following no symlink; returns `None` if there is no file.
    ///
    /// Removes temporary files of interrupted writes beside it. Blocks.
    pub(super) fn read(&self, largest: u64) -> std::io::Result<Option<Vec<u8>>> {
        sweep_and_log(&self.path);
        // NONBLOCK: opening a FIFO would wait for its writer.
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
        let mut bytes = Vec::with_capacity(size);
        file.take(largest).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns the write that replaces the file with mode 0600, unless one that was started later has done so.
    pub(super) fn write(
        self: &Arc<Self>,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + use<> {
        let file = Arc::clone(self);
        let order = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            // Held until the file is replaced: a caller that drops this future does not interrupt the blocking task.
            let mut finished = Arc::clone(&file.finished).lock_owned().await;
            let replaced = tokio::task::spawn_blocking(move || {
                if *finished < order {
                    replace(&file.path, &bytes, &Attributes { mode: 0o600, owner: None, group: None })?;
                    *finished = order;
                }
                Ok::<_, ReplaceError>(())
            });
            replaced.await??;
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::*;

    #[test]
    fn a_write_that_was_given_up_does_not_overwrite_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = OrderedFile::new(folder.path().join("web.json"));
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The only blocking thread is busy, as with a disk that hangs.
            let (release, released) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let mut given_up = Box::pin(file.write(b"first".to_vec()));
            let is_pending = |context: &mut Context<'_>| Poll::Ready(given_up.as_mut().poll(context).is_pending());
            assert!(std::future::poll_fn(is_pending).await);
            drop(given_up);
            assert!(file.finished.try_lock().is_err(), "the first write goes on, and the next one waits for it");
            let later = file.write(b"second".to_vec());
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            later.await.unwrap();
        });
        assert_eq!(std::fs::read(file.path()).unwrap(), b"second");
    }
}
