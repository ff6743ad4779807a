//! An encrypted file in the state folder, and the schedule of its writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::agent::state_file::{KeyPurpose, SealingKey, StateFile};
use crate::clock::{Clock, ClockReading};
use crate::secret;

/// File that keeps secrets over a restart, and the key that encrypts it.
#[derive(Debug, Clone)]
pub struct PersistOptions {
    /// The file.
    pub file: PathBuf,
    /// The configured key, from which the encryption key is derived.
    pub seal: SecretString,
}

impl PartialEq for PersistOptions {
    /// The key is compared in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && secret::ct_eq(&self.seal, other.seal.expose_secret().as_bytes())
    }
}

impl Eq for PersistOptions {}

/// An encrypted file. Clones share it.
#[derive(Debug, Clone)]
pub(in crate::agent) struct EncryptedFile {
    /// Content in log events.
    content: &'static str,
    file: Arc<StateFile>,
    seal: Arc<SealingKey>,
    header: Arc<str>,
    /// Number of the last write.
    write_count: Arc<AtomicU64>,
}

impl EncryptedFile {
    /// Prepares a file that opens only for the same `bound_to`: server, session, and all else that its content depends on.
    ///
    /// # Errors
    /// The crypto library derives no key from the configured one.
    pub(in crate::agent) fn new(
        persist: &PersistOptions,
        used_for: KeyPurpose,
        bound_to: &[&str],
    ) -> Result<Self, EncryptedFileError> {
        let seal = SealingKey::new(&persist.seal, used_for, bound_to).map_err(|_| EncryptedFileError)?;
        let content = if used_for == KeyPurpose::Answers { "kept answers" } else { "kept secrets" };
        let bound = digest(&SHA256, seal.bound_to());
        let bound = STANDARD.encode(bound);
        let header = format!("keyward {content} {VERSION} {bound}\n").into();
        let (file, write_count) = (StateFile::new(persist.file.clone()), Arc::new(AtomicU64::new(0)));
        Ok(Self { content, file, seal: Arc::new(seal), header, write_count })
    }

    /// Reads and parses the file of the previous process. A file that cannot be used is logged and moved aside.
    pub(in crate::agent) async fn load<T: Send + 'static>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, FileRejected> + Send + 'static,
    ) -> Option<T> {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            match this.decrypt().and_then(|plain| match plain {
                Some(plain) => parse(&plain).map(Some),
                None => Ok(None),
            }) {
                Ok(found) => found,
                Err(reason) => {
                    this.reject(&reason);
                    None
                }
            }
        });
        // The start does not wait for a hanging disk: without the file, everything is requested again.
        tokio::time::timeout(LOAD_TIMEOUT, read).await.ok()?.ok()?
    }

    fn decrypt(&self) -> Result<Option<Zeroizing<Vec<u8>>>, FileRejected> {
        let Some(bytes) = self.file.read(MAX_FILE).map_err(FileRejected::Unreadable)? else { return Ok(None) };
        let Some(sealed) = bytes.strip_prefix(self.header.as_bytes()) else {
            return Err(if bytes.starts_with(b"keyward ") { FileRejected::OtherBinding } else { FileRejected::Format });
        };
        self.seal.open(sealed).map(Some).map_err(|_| FileRejected::Key)
    }

    fn reject(&self, reason: &FileRejected) {
        let aside = self.file.set_aside();
        tracing::warn!(
            event = "secrets.state.refused",
            what = self.content,
            file = %self.file.path().display(),
            aside = aside.ok().map(|path| path.display().to_string()),
            error = crate::error_chain::format_chain(reason),
            "ignoring saved state from the previous run"
        );
    }

    /// Encrypts and writes the bytes that `plain` builds. Returns the size of the file; `None` after a failure, which is logged.
    async fn save(self, plain: impl FnOnce() -> Option<Zeroizing<Vec<u8>>> + Send + 'static) -> Option<usize> {
        let order = self.write_count.fetch_add(1, Ordering::Relaxed) + 1;
        let this = self.clone();
        let sealed = tokio::task::spawn_blocking(move || {
            let sealed = this.seal.seal(&plain()?).ok()?;
            Some([this.header.as_bytes(), &sealed].concat())
        });
        let bytes = sealed.await.ok()??;
        let size = bytes.len();
        match Arc::clone(&self.file).write(order, bytes).await {
            Ok(()) => Some(size),
            Err(error) => {
                let error = error.as_ref();
                tracing::warn!(
                    event = "secrets.state.failed",
                    what = self.content,
                    error,
                    "the state was not saved; a restart may lose it"
                );
                None
            }
        }
    }
}

/// The crypto library derives no key from the configured one.
#[derive(Debug, thiserror::Error)]
#[error("the crypto library cannot derive the key for the saved state")]
pub struct EncryptedFileError;

/// Reason why a saved file is ignored.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum FileRejected {
    #[error("it cannot be read")]
    Unreadable(#[source] std::io::Error),
    #[error("its content is damaged")]
    Format,
    #[error("it belongs to another server, session or configuration, or to another version")]
    OtherBinding,
    #[error("it was encrypted with another key, or was changed")]
    Key,
    #[error("the clock is behind the time of its last write")]
    Clock,
}

/// Extent of the changes since the last write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::agent) enum ChangeLevel {
    #[default]
    None,
    /// Entries were confirmed: they are younger than in the file, but the same.
    AgeOnly,
    /// Entries were added, replaced or removed.
    Content,
}

/// Schedules writes: soon after a change, but the less often the larger the file is.
#[derive(Debug, Default)]
struct WriteScheduler {
    not_before: Option<ClockReading>,
    due: Option<ClockReading>,
}

impl WriteScheduler {
    const fn due(&self) -> Option<ClockReading> {
        self.due
    }

    fn schedule(&mut self, now: ClockReading, changes: ChangeLevel) {
        let wait = match changes {
            ChangeLevel::None => return,
            ChangeLevel::AgeOnly => AGE_DELAY,
            ChangeLevel::Content => CONTENT_DELAY,
        };
        let wait = self.not_before.map_or(wait, |at| wait.max(now.until(at)));
        let at = now + wait;
        if self.due.is_none_or(|due| at.boot < due.boot) {
            self.due = Some(at);
        }
    }

    const fn record_start(&mut self) {
        self.due = None;
    }

    /// Records the size of the written file; `None` after a failure, which schedules another write.
    fn record_end(&mut self, now: ClockReading, bytes: Option<usize>) {
        let pause = bytes.map_or(RETRY_DELAY, |bytes| Duration::from_secs(bytes as u64 / MAX_BYTES_PER_SECOND));
        self.not_before = Some(now + pause);
        if bytes.is_none() {
            self.schedule(now, ChangeLevel::Content);
        } else if let Some(due) = self.due.take() {
            let wait = now.until(due).max(pause);
            self.due = Some(now + wait);
        }
    }
}

/// Writes a file in the background, one write at a time.
#[derive(Debug)]
pub(in crate::agent) struct BackgroundWriter {
    file: EncryptedFile,
    scheduler: WriteScheduler,
    /// Returns the size of the file.
    write: JoinSet<Option<usize>>,
}

impl BackgroundWriter {
    pub(in crate::agent) fn new(file: EncryptedFile) -> Self {
        Self { file, scheduler: WriteScheduler::default(), write: JoinSet::new() }
    }

    /// Schedules a write after a change.
    pub(in crate::agent) fn schedule(&mut self, now: ClockReading, changes: ChangeLevel) {
        self.scheduler.schedule(now, changes);
    }

    /// Waits until a write is due.
    pub(in crate::agent) async fn wait_until_due(&mut self, clock: &Clock) {
        loop {
            let due = self.scheduler.due().filter(|_| self.write.is_empty());
            tokio::select! {
                Some(written) = self.write.join_next() => self.scheduler.record_end(clock.now(), written.ok().flatten()),
                () = clock.sleep_until_some(due) => return,
            }
        }
    }

    /// Starts writing the bytes that `plain` builds.
    pub(in crate::agent) fn write(&mut self, plain: impl FnOnce() -> Option<Zeroizing<Vec<u8>>> + Send + 'static) {
        self.scheduler.record_start();
        self.write.spawn(self.file.clone().save(plain));
    }

    /// Waits for the write under way. Returns true if another is scheduled.
    pub(in crate::agent) async fn finish_write(&mut self, clock: &Clock) -> bool {
        while let Some(written) = self.write.join_next().await {
            self.scheduler.record_end(clock.now(), written.ok().flatten());
        }
        self.scheduler.due().is_some()
    }
}

/// Version of the header.
const VERSION: u8 = 1;

/// Bounds the content of a file, in bytes before encryption.
pub(in crate::agent) const MAX_CONTENT: usize = 16 * 1024 * 1024;

/// Bounds the file that is read: the content with JSON around it.
const MAX_FILE: u64 = 4 * MAX_CONTENT as u64;

const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

const CONTENT_DELAY: Duration = Duration::from_secs(1);
const AGE_DELAY: Duration = Duration::from_mins(1);
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Bounds the average rate of writes.
const MAX_BYTES_PER_SECOND: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    #[test]
    fn a_write_follows_a_change_soon_and_large_files_are_written_less_often() {
        let mut scheduler = WriteScheduler::default();
        scheduler.schedule(at(100, 100), ChangeLevel::None);
        assert_eq!(scheduler.due(), None);
        scheduler.schedule(at(100, 100), ChangeLevel::AgeOnly);
        assert_eq!(scheduler.due(), Some(at(160, 160)));
        scheduler.schedule(at(110, 110), ChangeLevel::Content);
        assert_eq!(scheduler.due(), Some(at(111, 111)));
        scheduler.record_start();
        scheduler.schedule(at(111, 111), ChangeLevel::Content);
        scheduler.record_end(at(112, 112), Some(16 * 1024 * 1024));
        assert_eq!(scheduler.due(), Some(at(176, 176)), "16 MiB take a minute of the rate");
        scheduler.record_start();
        scheduler.record_end(at(177, 177), None);
        assert_eq!(scheduler.due(), Some(at(237, 237)), "a failed write is retried");
    }
}
