//! State file of a session: the retry budget, and the encrypted token if there is a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keyward_machine::clock::{ClockReading, millis};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use serde::{Deserialize, Serialize};

use super::SessionStateOptions;
use super::current_token::{CurrentToken, LookupStatus};
use super::token_record::{deserialize_token, serialize_token};
use crate::encrypted_file::{EncryptedFile, FileKind, FileRejected, PersistOptions};
use crate::retry_budget::RetryBudgetRecord;
use crate::token::Generation;

/// The state file of one session.
#[derive(Debug)]
pub(super) struct SessionStateFile {
    session: String,
    /// Digests of the session's settings ([`super::TokenManagerDeps::fingerprint`]).
    fingerprint: String,
    file: EncryptedFile,
    last_write: Option<StartedWrite>,
}

/// The last write that was started.
#[derive(Debug)]
struct StartedWrite {
    fingerprint: SavedFingerprint,
    /// True once the file has the content. The write shares it until it ends or is given up.
    is_saved: Arc<AtomicBool>,
}

impl StartedWrite {
    /// Returns true if the file has the content, or the write that is under way gives it that content.
    fn covers(&self, fingerprint: &SavedFingerprint) -> bool {
        let is_under_way = Arc::strong_count(&self.is_saved) > 1;
        self.fingerprint == *fingerprint && (is_under_way || self.is_saved.load(Ordering::Acquire))
    }
}

/// Content of a state file.
#[derive(Debug, Default)]
pub(super) struct LoadedState {
    pub(super) retry_budget: Option<RetryBudgetRecord>,
    pub(super) current: Option<CurrentToken>,
    /// Error of the last login.
    pub(super) last_error: Option<String>,
    /// True if a session with other settings saved the retry budget.
    pub(super) changed: bool,
    /// Error of the file, or of the token in it.
    pub(super) refused: Option<StateFileError>,
}

/// JSON document in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnDisk {
    version: u8,
    session: String,
    pub(super) retry_budget: RetryBudgetRecord,
    token: Option<String>,
    fingerprint: String,
    last_error: Option<String>,
}

impl SessionStateFile {
    /// Opens the state file of a session. An encrypted token opens only for the same session and the same `bound_to`.
    pub(super) fn new(state: &SessionStateOptions, session: &str, bound_to: &[&str], fingerprint: &str) -> Self {
        let names: Vec<&str> = [session].into_iter().chain(bound_to.iter().copied()).collect();
        let encrypted = state.seal_key.clone().and_then(|seal| {
            let persist = PersistOptions { file: state.file.clone(), seal };
            match EncryptedFile::new(&persist, FileKind::SessionState, &names) {
                Ok(file) => Some(file),
                Err(error) => {
                    tracing::warn!(
                        event = "state.write.failed",
                        session,
                        code = ErrorCode::StateNotSaved.as_str(),
                        error = format_chain(&error),
                        "cannot encrypt the token, so the next start needs a login"
                    );
                    None
                }
            }
        });
        let file = encrypted.unwrap_or_else(|| EncryptedFile::without_key(state.file.clone(), FileKind::SessionState));
        Self { session: session.to_owned(), fingerprint: fingerprint.to_owned(), file, last_write: None }
    }

    /// Continues the write order of `old` if both use the same file.
    pub(super) fn continue_order_of(mut self, old: Option<&Self>) -> Self {
        if let Some(old) = old {
            self.file.continue_order_of(&old.file);
        }
        self
    }

    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads the file. Blocks.
    pub(super) fn load(&self, now: ClockReading) -> LoadedState {
        let refuse = |reason| LoadedState {
            refused: Some(StateFileError { file: self.file.path().to_owned(), reason }),
            ..LoadedState::default()
        };
        let text = match self.file.read() {
            Ok(None) => return LoadedState::default(),
            Ok(Some(text)) => text,
            Err(reason) => return refuse(reason),
        };
        let Ok(on_disk) = parse(&text) else { return refuse(FileRejected::Format) };
        if on_disk.version != VERSION || on_disk.session != self.session {
            return refuse(FileRejected::OtherBinding);
        }
        let changed = on_disk.fingerprint != self.fingerprint;
        let is_outdated = settings_digest(&on_disk.fingerprint) != settings_digest(&self.fingerprint);
        let loaded = LoadedState {
            retry_budget: Some(on_disk.retry_budget),
            last_error: on_disk.last_error,
            changed,
            ..LoadedState::default()
        };
        let Some(token) = on_disk.token else { return loaded };
        let decrypted = self.file.decrypt_field(&token);
        let current = decrypted.and_then(|plain| plain.map_or(Ok(None), |plain| deserialize_token(&plain, now)));
        match current {
            Ok(current) => {
                let mark =
                    |current: CurrentToken| CurrentToken { outdated: current.outdated || is_outdated, ..current };
                LoadedState { current: current.map(mark), ..loaded }
            }
            Err(reason) => LoadedState { refused: refuse(reason).refused, ..loaded },
        }
    }

    /// Returns the write of the file if its content changes, or if the last write has failed or was given up. Of concurrent
    /// writes the newest wins; failures are logged.
    pub(super) fn save(
        &mut self,
        retry_budget: &RetryBudgetRecord,
        current: Option<&CurrentToken>,
        last_error: Option<&str>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let token = current.and_then(|current| self.file.encrypt_field(&serialize_token(current)?));
        let last_error = last_error.map(truncate_error);
        let fingerprint = saved_fingerprint(retry_budget, current, last_error.as_deref());
        if self.last_write.as_ref().is_some_and(|write| write.covers(&fingerprint)) {
            return None;
        }
        let on_disk = OnDisk {
            version: VERSION,
            session: self.session.clone(),
            retry_budget: retry_budget.clone(),
            token,
            fingerprint: self.fingerprint.clone(),
            last_error,
        };
        let bytes = serde_json::to_vec(&on_disk).ok()?;
        let write = self.file.write(bytes);
        let session = self.session.clone();
        let is_saved = Arc::new(AtomicBool::new(false));
        self.last_write = Some(StartedWrite { fingerprint, is_saved: Arc::clone(&is_saved) });
        Some(async move {
            match write.await {
                Ok(()) => is_saved.store(true, Ordering::Release),
                Err(error) => {
                    let error = error.as_ref();
                    tracing::warn!(
                        event = "state.write.failed",
                        session,
                        code = ErrorCode::StateNotSaved.as_str(),
                        error,
                        "cannot write the state file, so the next start needs a login"
                    );
                }
            }
        })
    }
}

/// The part of a fingerprint that covers the settings which a token was obtained with, without the files that may vanish.
fn settings_digest(fingerprint: &str) -> &str {
    fingerprint.split('.').next().unwrap_or(fingerprint)
}

/// Parses the document. The parser's error is dropped, since it may quote the file.
pub(super) fn parse(text: &[u8]) -> Result<OnDisk, FileRejected> {
    serde_json::from_slice(text).map_err(|_| FileRejected::Format)
}

/// Content of a write without its encryption, since encrypted bytes differ each time.
type SavedFingerprint = (RetryBudgetRecord, Option<(Generation, [bool; 2], LookupStatus, Option<u64>)>, Option<String>);

fn saved_fingerprint(
    retry_budget: &RetryBudgetRecord,
    current: Option<&CurrentToken>,
    last_error: Option<&str>,
) -> SavedFingerprint {
    let current = current.map(|current| {
        let ends = current.lifetime.ends.map(|ends| millis(ends.wall));
        (current.token.generation, [current.lifetime.renewable, current.outdated], current.lookup_status, ends)
    });
    (retry_budget.clone(), current, last_error.map(str::to_owned))
}

/// Truncates an error, so that no server can fill the file.
fn truncate_error(error: &str) -> String {
    error.chars().take(MAX_ERROR_CHARS).collect()
}

const MAX_ERROR_CHARS: usize = 1000;
const VERSION: u8 = 1;

/// A state file that cannot be used. The session logs in instead.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the state file {}", file.display())]
pub(crate) struct StateFileError {
    file: PathBuf,
    #[source]
    reason: FileRejected,
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::retry_budget::RetryBudget;

    #[test]
    fn a_saved_token_is_outdated_by_other_settings_and_not_by_other_files() {
        for (saved, own, expected) in [("a.x", "a.x", false), ("a.x", "a.y", false), ("a.x", "b.x", true)] {
            assert_eq!(settings_digest(saved) != settings_digest(own), expected, "{saved} {own}");
        }
    }

    #[tokio::test]
    async fn content_is_written_again_until_a_write_of_it_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        let options = SessionStateOptions { file: state_dir.join("web.json"), seal_key: None };
        let mut file = SessionStateFile::new(&options, "web", &[], "one");
        let now = ClockReading { boot: Duration::ZERO, wall: SystemTime::UNIX_EPOCH };
        let budget = RetryBudget::new(now).to_record();
        let given_up = file.save(&budget, None, None).unwrap();
        assert!(file.save(&budget, None, None).is_none(), "a write of it is under way");
        drop(given_up);
        file.save(&budget, None, None).unwrap().await;
        assert!(!options.file.exists(), "there is no folder");
        std::fs::create_dir(&state_dir).unwrap();
        file.save(&budget, None, None).unwrap().await;
        assert!(options.file.exists());
        assert!(file.save(&budget, None, None).is_none());
        assert!(file.save(&budget, None, Some("an error")).is_some());
    }
}
