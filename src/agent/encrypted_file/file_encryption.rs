//! Encrypts a file as a whole behind a header, or in one field of a document; refuses one that cannot be used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_machine::clock::{ClockReading, millis};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;

use super::ordered_file::OrderedFile;
use super::sealing_key::{FileKind, SealingKey};

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

/// An encrypted file. Clones share it, and the order of its writes.
#[derive(Debug, Clone)]
pub(crate) struct EncryptedFile {
    kind: FileKind,
    file: Arc<OrderedFile>,
    /// `None` for a document whose fields are omitted because no key is configured.
    key: Option<Arc<SealingKey>>,
}

impl EncryptedFile {
    /// Prepares a file that opens only for the same `bound_to`: server, session, and all else that its content depends on.
    pub(crate) fn new(persist: &PersistOptions, kind: FileKind, bound_to: &[&str]) -> Result<Self, KeyDerivationError> {
        let key = SealingKey::new(&persist.seal, kind, bound_to).map_err(|_| KeyDerivationError)?;
        Ok(Self { key: Some(Arc::new(key)), ..Self::without_key(persist.file.clone(), kind) })
    }

    /// Prepares a file that holds nothing encrypted.
    pub(crate) fn without_key(path: PathBuf, kind: FileKind) -> Self {
        Self { kind, file: OrderedFile::new(path), key: None }
    }

    /// Continues the write order of `old` if both are the same file.
    pub(crate) fn continue_order_of(&mut self, old: &Self) {
        if old.path() == self.path() {
            self.file = Arc::clone(&old.file);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads a document; returns `None` if there is no file. Blocks.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, FileRejected> {
        self.file.read(self.kind.max_size()).map_err(FileRejected::Unreadable)
    }

    /// Returns the write of a document. Of concurrent writes the newest wins.
    pub(crate) fn write(
        &self,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + use<> {
        self.file.write(bytes)
    }

    /// Encrypts a field of a document; returns `None` without a key.
    pub(crate) fn encrypt_field(&self, plain: &[u8]) -> Option<String> {
        Some(STANDARD.encode(self.key.as_ref()?.seal(plain).ok()?))
    }

    /// Decrypts a field of a document; returns `None` without a key.
    pub(crate) fn decrypt_field(&self, field: &str) -> Result<Option<Vec<u8>>, FileRejected> {
        let Some(key) = &self.key else { return Ok(None) };
        let sealed = STANDARD.decode(field).map_err(|_| FileRejected::Key)?;
        key.open(&sealed).map(Some).map_err(|_| FileRejected::Key)
    }

    /// Reads, decrypts and parses the file of the previous process. A file that cannot be used is logged and moved aside.
    pub(crate) async fn load<T: Send + 'static>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, FileRejected> + Send + 'static,
    ) -> Option<T> {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let parsed = this.decrypt().and_then(|plain| plain.map(|plain| parse(&plain)).transpose());
            parsed.unwrap_or_else(|reason| {
                this.reject(&reason);
                None
            })
        });
        // The start does not wait for a hanging disk: without the file, everything is requested again.
        if let Ok(parsed) = tokio::time::timeout(LOAD_TIMEOUT, read).await {
            return parsed.ok()?;
        }
        self.log_refused(&format!("it was not read within {} s", LOAD_TIMEOUT.as_secs()), None);
        None
    }

    fn decrypt(&self) -> Result<Option<Vec<u8>>, FileRejected> {
        let Some((key, bytes)) = self.key.as_ref().zip(self.read()?) else { return Ok(None) };
        let Some(sealed) = bytes.strip_prefix(self.header(key).as_bytes()) else {
            // Another binding shows in the header's digest; other bytes are not this program's.
            return Err(if bytes.starts_with(b"keyward ") { FileRejected::OtherBinding } else { FileRejected::Format });
        };
        key.open(sealed).map(Some).map_err(|_| FileRejected::Key)
    }

    /// Returns the header: it shows that a file belongs to another server or session, although its key is the same.
    fn header(&self, key: &SealingKey) -> String {
        let bound = STANDARD.encode(digest(&SHA256, key.bound_to()));
        format!("{} {VERSION} {bound}\n", self.kind.name())
    }

    fn reject(&self, reason: &FileRejected) {
        let moved_to = self.file.move_aside().ok();
        self.log_refused(&format_chain(reason), moved_to.as_deref());
    }

    /// Logs that the file is ignored; `moved_to` is its new path, if it was moved.
    fn log_refused(&self, error: &str, moved_to: Option<&Path>) {
        tracing::warn!(
            event = "secrets.state.refused",
            code = ErrorCode::SavedStateRejected.as_str(),
            content = self.kind.describe(),
            path = self.path().display().to_string(),
            moved_to = moved_to.map(|path| path.display().to_string()),
            error,
            "ignoring saved state of the previous process"
        );
    }

    /// Encrypts and writes the bytes that `plain` builds. Returns the size of the file; `None` after a failure, which is logged.
    pub(super) async fn save(self, plain: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) -> Option<usize> {
        let this = self.clone();
        let sealed = tokio::task::spawn_blocking(move || {
            let key = this.key.as_ref()?;
            let sealed = key.seal(&plain()?).ok()?;
            Some([this.header(key).as_bytes(), &sealed].concat())
        });
        let bytes = sealed.await.ok()??;
        let size = bytes.len();
        match self.write(bytes).await {
            Ok(()) => Some(size),
            Err(error) => {
                let error = error.as_ref();
                tracing::warn!(
                    event = "secrets.state.failed",
                    code = ErrorCode::StateNotSaved.as_str(),
                    content = self.kind.describe(),
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
pub struct KeyDerivationError;

/// Reason why a saved file is ignored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileRejected {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// The content is not what this program writes.
    #[error("its content is damaged")]
    Format,
    /// The file belongs to other names, or to another version of the program.
    #[error("it belongs to another server, session or configuration, or to another version")]
    OtherBinding,
    /// The content does not decrypt.
    #[error("it was encrypted with another key or for another server or role, or was modified")]
    Key,
    /// The wall clock is behind a time in the file.
    #[error("the clock is behind the time that it records")]
    Clock,
}

/// Refuses a file that records a time in the future, in milliseconds since 1970: with the clock set back, neither ages nor
/// remaining lifetimes can be computed.
pub(crate) fn check_clock(recorded: u64, now: ClockReading) -> Result<(), FileRejected> {
    if recorded > millis(now.wall).saturating_add(CLOCK_SLACK) { Err(FileRejected::Clock) } else { Ok(()) }
}

/// Version of the header.
const VERSION: u8 = 1;

/// Tolerated lag of the wall clock behind a recorded time, in milliseconds.
const CLOCK_SLACK: u64 = 60_000;

const LOAD_TIMEOUT: Duration = Duration::from_secs(5);
