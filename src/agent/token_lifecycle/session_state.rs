//! State file of a session: the retry budget, and the encrypted token if there is a key.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::SessionStateOptions;
use super::current_token::{CurrentToken, LookupStatus};
use super::state_encryption::{StateRejected, deserialize_token, serialize_token};
use crate::agent::retry_budget::RetryBudgetRecord;
use crate::agent::state_file::{KeyPurpose, SealingKey, StateFile};
use crate::agent::token::Generation;
use crate::clock::{ClockReading, millis};

/// The state file of one session.
#[derive(Debug)]
pub(super) struct SessionStateFile {
    session: String,
    key: Option<SealingKey>,
    /// Digest of the session's settings ([`super::TokenManagerDeps::fingerprint`]).
    fingerprint: String,
    file: Arc<StateFile>,
    /// Fingerprint of the last write.
    last_saved: Option<SavedFingerprint>,
    order: u64,
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
struct OnDisk {
    version: u8,
    session: String,
    #[serde(rename = "pace")]
    retry_budget: RetryBudgetRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl SessionStateFile {
    /// Opens the state file of a session. An encrypted token opens only for the same session and the same `bound_to`.
    pub(super) fn new(state: &SessionStateOptions, session: &str, bound_to: &[&str], fingerprint: &str) -> Self {
        let names: Vec<&str> = [session].into_iter().chain(bound_to.iter().copied()).collect();
        let key = state.seal_key.as_ref().and_then(|text| SealingKey::new(text, KeyPurpose::Token, &names).ok());
        let (file, fingerprint) = (StateFile::new(state.file.clone()), fingerprint.to_owned());
        Self { session: session.to_owned(), key, fingerprint, file, last_saved: None, order: 0 }
    }

    /// Continues the write order of `old` if both use the same file.
    pub(super) fn continue_order_of(mut self, old: Option<&Self>) -> Self {
        if let Some(old) = old.filter(|old| old.file.path() == self.file.path()) {
            (self.file, self.order) = (Arc::clone(&old.file), old.order);
        }
        self
    }

    /// Reads the file. Blocks.
    pub(super) fn load(&self, now: ClockReading) -> LoadedState {
        let refuse = |reason| LoadedState {
            refused: Some(StateFileError { file: self.file.path().to_owned(), reason }),
            ..LoadedState::default()
        };
        let text = match self.file.read(MAX_FILE_SIZE) {
            Ok(None) => return LoadedState::default(),
            Ok(Some(text)) => text,
            Err(error) => return refuse(StateRejected::Unreadable(error)),
        };
        let on_disk: OnDisk = match serde_json::from_slice(&text) {
            Ok(on_disk) => on_disk,
            // The parser's error may quote the file.
            Err(_) => return refuse(StateRejected::Malformed),
        };
        if on_disk.version != VERSION || on_disk.session != self.session {
            return refuse(StateRejected::Foreign);
        }
        // Older releases wrote no fingerprint: nothing is known to have changed.
        let changed = on_disk.fingerprint.is_some_and(|its| its != self.fingerprint);
        let loaded = LoadedState {
            retry_budget: Some(on_disk.retry_budget),
            last_error: on_disk.last_error,
            changed,
            ..LoadedState::default()
        };
        let Some((key, sealed)) = self.key.as_ref().zip(on_disk.token) else { return loaded };
        match STANDARD
            .decode(sealed)
            .ok()
            .and_then(|sealed| key.open(&sealed).ok())
            .map(|plain| deserialize_token(&plain, now))
        {
            Some(Ok(current)) => LoadedState { current, ..loaded },
            Some(Err(reason)) => LoadedState { refused: refuse(reason).refused, ..loaded },
            None => LoadedState { refused: refuse(StateRejected::WrongKey).refused, ..loaded },
        }
    }

    /// Returns the write of the file if its content changes. Of concurrent writes the newest wins; failures are logged.
    pub(super) fn save(
        &mut self,
        retry_budget: &RetryBudgetRecord,
        current: Option<&CurrentToken>,
        last_error: Option<&str>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let token = self.key.as_ref().zip(current).and_then(|(key, current)| {
            let sealed = key.seal(&serialize_token(current)?).ok()?;
            Some(STANDARD.encode(sealed))
        });
        let last_error = last_error.map(truncate_error);
        let saved_fingerprint = saved_fingerprint(retry_budget, current, last_error.as_deref());
        if self.last_saved.as_ref() == Some(&saved_fingerprint) {
            return None;
        }
        self.last_saved = Some(saved_fingerprint);
        let on_disk = OnDisk {
            version: VERSION,
            session: self.session.clone(),
            retry_budget: retry_budget.clone(),
            token,
            fingerprint: Some(self.fingerprint.clone()),
            last_error,
        };
        let bytes = serde_json::to_vec(&on_disk).ok()?;
        self.order += 1;
        let (file, order) = (Arc::clone(&self.file), self.order);
        let session = self.session.clone();
        Some(async move {
            if let Err(error) = file.write(order, bytes).await {
                let error = error.as_ref();
                tracing::warn!(
                    event = "state.write.failed",
                    session,
                    error,
                    "cannot write the state file, so the next start needs a login"
                );
            }
        })
    }
}

/// Content of a write without its encryption, since encrypted bytes differ each time.
type SavedFingerprint = (RetryBudgetRecord, Option<(Generation, bool, LookupStatus, Option<u64>)>, Option<String>);

fn saved_fingerprint(
    retry_budget: &RetryBudgetRecord,
    current: Option<&CurrentToken>,
    last_error: Option<&str>,
) -> SavedFingerprint {
    let current = current.map(|current| {
        let ends = current.lifetime.ends.map(|ends| millis(ends.wall));
        (current.token.generation, current.lifetime.renewable, current.lookup_status, ends)
    });
    (retry_budget.clone(), current, last_error.map(str::to_owned))
}

/// Truncates an error, so that no server can fill the file.
fn truncate_error(error: &str) -> String {
    error.chars().take(MAX_ERROR_CHARS).collect()
}

const MAX_ERROR_CHARS: usize = 1000;
const VERSION: u8 = 1;
const MAX_FILE_SIZE: u64 = 256 * 1024;

/// A state file that cannot be used. The session logs in instead.
#[derive(Debug, thiserror::Error)]
#[error("ignoring the state in {}", file.display())]
pub struct StateFileError {
    file: PathBuf,
    #[source]
    reason: StateRejected,
}
