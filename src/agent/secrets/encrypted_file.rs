//! A sealed file of the state folder, and when it is written.

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

/// Where secrets are kept over a restart, and what seals them.
#[derive(Debug, Clone)]
pub struct PersistOptions {
    /// The file.
    pub file: PathBuf,
    /// The key that seals it.
    pub seal: SecretString,
}

impl PartialEq for PersistOptions {
    /// The key is compared in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && secret::ct_eq(&self.seal, other.seal.expose_secret().as_bytes())
    }
}

impl Eq for PersistOptions {}

/// A sealed file. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct EncryptedFile {
    what: &'static str,
    file: Arc<StateFile>,
    seal: Arc<SealingKey>,
    head: Arc<str>,
    order: Arc<AtomicU64>,
}

impl EncryptedFile {
    /// Opens for the same `bound_to` alone: server, session, and whatever else decides what is in it.
    ///
    /// # Errors
    /// The crypto library refused.
    pub(super) fn new(
        persist: &PersistOptions,
        used_for: KeyPurpose,
        bound_to: &[&str],
    ) -> Result<Self, EncryptedFileError> {
        let seal = SealingKey::new(&persist.seal, used_for, bound_to).map_err(|_| EncryptedFileError)?;
        let what = if used_for == KeyPurpose::Answers { "kept answers" } else { "kept secrets" };
        let bound = digest(&SHA256, seal.bound_to());
        let bound = STANDARD.encode(bound);
        let head = format!("keyward {what} {VERSION} {bound}\n").into();
        let (file, order) = (StateFile::new(persist.file.clone()), Arc::new(AtomicU64::new(0)));
        Ok(Self { what, file, seal: Arc::new(seal), head, order })
    }

    /// What the last process left, if it is to be had and `parse` takes it. What is not taken is told, and set aside.
    pub(super) async fn load<T: Send + 'static>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, FileRejected> + Send + 'static,
    ) -> Option<T> {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            match this.open().and_then(|plain| match plain {
                Some(plain) => parse(&plain).map(Some),
                None => Ok(None),
            }) {
                Ok(found) => found,
                Err(why) => {
                    this.refuse(&why);
                    None
                }
            }
        });
        // A disk that does not answer now will not do so later.
        tokio::time::timeout(LOAD_LIMIT, read).await.ok()?.ok()?
    }

    fn open(&self) -> Result<Option<Zeroizing<Vec<u8>>>, FileRejected> {
        let Some(bytes) = self.file.read(LARGEST_FILE).map_err(FileRejected::Unreadable)? else { return Ok(None) };
        let Some(sealed) = bytes.strip_prefix(self.head.as_bytes()) else {
            return Err(if bytes.starts_with(b"keyward ") { FileRejected::Foreign } else { FileRejected::Shape });
        };
        self.seal.open(sealed).map(Some).map_err(|_| FileRejected::Seal)
    }

    fn refuse(&self, why: &FileRejected) {
        let aside = self.file.set_aside();
        tracing::warn!(
            event = "secrets.state.refused",
            what = self.what,
            file = %self.file.path().display(),
            aside = aside.ok().map(|path| path.display().to_string()),
            error = crate::error_chain::format_chain(why),
            "what the last process left is not taken"
        );
    }

    /// Seals and writes what `plain` makes; says how many bytes that were, if it went well.
    pub(super) async fn save(
        self,
        plain: impl FnOnce() -> Option<Zeroizing<Vec<u8>>> + Send + 'static,
    ) -> Option<usize> {
        let order = self.order.fetch_add(1, Ordering::Relaxed) + 1;
        let this = self.clone();
        let sealed = tokio::task::spawn_blocking(move || {
            let sealed = this.seal.seal(&plain()?).ok()?;
            Some([this.head.as_bytes(), &sealed].concat())
        });
        let bytes = sealed.await.ok()??;
        let size = bytes.len();
        match Arc::clone(&self.file).write(order, bytes).await {
            Ok(()) => Some(size),
            Err(error) => {
                let error = error.as_ref();
                tracing::warn!(
                    event = "secrets.state.failed",
                    what = self.what,
                    error,
                    "a restart may lack what is kept now"
                );
                None
            }
        }
    }
}

/// No key could be made of the one that was given.
#[derive(Debug, thiserror::Error)]
#[error("the crypto library makes no key for what is kept over a restart")]
pub struct EncryptedFileError;

/// FileRejected a file was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileRejected {
    #[error("it cannot be read")]
    Unreadable(#[source] std::io::Error),
    #[error("its content is damaged")]
    Shape,
    #[error("it is of another server, session or configuration, or of another version")]
    Foreign,
    #[error("it was sealed with another key, or was changed")]
    Seal,
    #[error("the clock is behind the time that it was written at")]
    Clock,
}

/// How much has changed since the file was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeLevel {
    /// Nothing.
    #[default]
    None,
    /// What is kept was looked at again and is the same: it is only younger than the file says.
    AgeOnly,
    /// There is something new, or something less.
    Content,
}

/// When the file is written: soon after a change, but the rarer the larger it is.
#[derive(Debug, Default)]
pub(super) struct WriteScheduler {
    not_before: Option<ClockReading>,
    due: Option<ClockReading>,
}

impl WriteScheduler {
    /// When.
    pub(super) const fn due(&self) -> Option<ClockReading> {
        self.due
    }

    /// Notes a change.
    pub(super) fn changed(&mut self, now: ClockReading, changes: ChangeLevel) {
        let wait = match changes {
            ChangeLevel::None => return,
            ChangeLevel::AgeOnly => LATER,
            ChangeLevel::Content => SOON,
        };
        let wait = self.not_before.map_or(wait, |at| wait.max(now.until(at)));
        let at = now + wait;
        if self.due.is_none_or(|due| at.boot < due.boot) {
            self.due = Some(at);
        }
    }

    /// Notes that it is being written.
    pub(super) const fn begun(&mut self) {
        self.due = None;
    }

    /// Notes that so many bytes were written; none where that failed, which is tried again.
    pub(super) fn ended(&mut self, now: ClockReading, bytes: Option<usize>) {
        let pause = bytes.map_or(LATER, |bytes| Duration::from_secs(bytes as u64 / BYTES_A_SECOND));
        self.not_before = Some(now + pause);
        if bytes.is_none() {
            self.changed(now, ChangeLevel::Content);
        } else if let Some(due) = self.due.take() {
            let wait = now.until(due).max(pause);
            self.due = Some(now + wait);
        }
    }
}

/// Writes what is kept, one write at a time.
#[derive(Debug)]
pub(super) struct BackgroundWriter {
    file: EncryptedFile,
    saving: WriteScheduler,
    /// Gives how many bytes were written.
    under_way: JoinSet<Option<usize>>,
}

impl BackgroundWriter {
    pub(super) fn new(file: EncryptedFile) -> Self {
        Self { file, saving: WriteScheduler::default(), under_way: JoinSet::new() }
    }

    /// Notes a change.
    pub(super) fn changed(&mut self, now: ClockReading, changes: ChangeLevel) {
        self.saving.changed(now, changes);
    }

    /// Returns when it is time to write.
    pub(super) async fn time(&mut self, clock: &Clock) {
        loop {
            let due = self.saving.due().filter(|_| self.under_way.is_empty());
            tokio::select! {
                Some(written) = self.under_way.join_next() => self.saving.ended(clock.now(), written.ok().flatten()),
                () = clock.sleep_until_some(due) => return,
            }
        }
    }

    /// Writes what `plain` makes.
    pub(super) fn write(&mut self, plain: impl FnOnce() -> Option<Zeroizing<Vec<u8>>> + Send + 'static) {
        self.saving.begun();
        self.under_way.spawn(self.file.clone().save(plain));
    }

    /// Waits for what is under way; says whether there is more to be written.
    pub(super) async fn settled(&mut self, clock: &Clock) -> bool {
        while let Some(written) = self.under_way.join_next().await {
            self.saving.ended(clock.now(), written.ok().flatten());
        }
        self.saving.due().is_some()
    }
}

const VERSION: u8 = 1;

/// The most that is kept in a file, in bytes of what is in it: what was used last.
pub(super) const LARGEST: usize = 16 * 1024 * 1024;

/// More than that with all that is written around it.
const LARGEST_FILE: u64 = 4 * LARGEST as u64;

const LOAD_LIMIT: Duration = Duration::from_secs(5);

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_mins(1);

/// What a disk is asked for at most, over time.
const BYTES_A_SECOND: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    #[test]
    fn a_file_is_written_soon_after_a_change_and_the_rarer_the_larger_it_is() {
        let mut saving = WriteScheduler::default();
        saving.changed(at(100, 100), ChangeLevel::None);
        assert_eq!(saving.due(), None);
        saving.changed(at(100, 100), ChangeLevel::AgeOnly);
        assert_eq!(saving.due(), Some(at(160, 160)));
        saving.changed(at(110, 110), ChangeLevel::Content);
        assert_eq!(saving.due(), Some(at(111, 111)));
        saving.begun();
        saving.changed(at(111, 111), ChangeLevel::Content);
        saving.ended(at(112, 112), Some(16 * 1024 * 1024));
        assert_eq!(saving.due(), Some(at(176, 176)), "16 MiB are a minute's worth");
        saving.begun();
        saving.ended(at(177, 177), None);
        assert_eq!(saving.due(), Some(at(237, 237)), "what failed is tried again");
    }
}
