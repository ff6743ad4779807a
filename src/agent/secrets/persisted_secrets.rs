//! Secrets of a registry in a file, for the next process.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_code::ErrorCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::content_end::ContentEnd;
use super::{SecretFields, SecretRequest};
use crate::encrypted_file::{
    BackgroundWriter, ChangeLevel, EncryptedFile, FileKind, FileRejected, KeyDerivationError, MAX_CONTENT,
    PersistOptions,
};
use crate::leases::{ActiveLease, SavedLease, Snapshot, TokenFingerprint, age_of, time_of_age};
use crate::server_client::SecretLease;
use crate::token::{Generation, TokenWatch};

/// Options for secrets that are kept over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineOptions {
    /// The file and its key.
    pub persist: PersistOptions,
    /// Age up to which a secret without a lease is used while the server does not respond.
    pub max_stale_age: Duration,
}

/// Saved state of each secret. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct PersistedSecrets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: EncryptedFile,
    max_stale_age: Duration,
    records: Mutex<Records>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Records {
    /// The token of the previous process.
    fingerprint: Option<TokenFingerprint>,
    secrets: BTreeMap<SecretRequest, SecretRecord>,
    changes: ChangeLevel,
}

/// Saved state of one secret.
#[derive(Debug, Clone)]
pub(super) struct SecretRecord {
    pub(super) data: Arc<SecretFields>,
    /// When it was read by this process, or restored.
    pub(super) read: ClockReading,
    /// Age at that time.
    pub(super) age_at_read: Duration,
    pub(super) lease: Option<(SecretLease, ActiveLease)>,
    pub(super) suggested_ttl: Option<Duration>,
    /// The login whose token read it; `None` for a login of the previous process.
    pub(super) login: Option<Generation>,
}

impl SecretRecord {
    /// Time since the server's response.
    pub(super) fn age(&self, now: ClockReading) -> Duration {
        self.age_at_read + now.since(self.read)
    }
}

/// One secret in the file.
#[derive(Serialize, Deserialize)]
struct SavedSecret<'a> {
    request: Cow<'a, SecretRequest>,
    /// Time of the server's response, in milliseconds since 1970.
    response_time: u64,
    lease: Option<(Cow<'a, str>, SavedLease)>,
    /// In seconds.
    suggested_ttl: Option<u64>,
    data: Cow<'a, SecretFields>,
}

impl PersistedSecrets {
    /// Creates an empty set. The file is restored only for the same `bound_to`.
    pub(super) fn new(offline: &OfflineOptions, bound_to: &[&str]) -> Result<Self, KeyDerivationError> {
        let file = EncryptedFile::new(&offline.persist, FileKind::TemplateSecrets, bound_to)?;
        let records = Mutex::default();
        let changed = Notify::new();
        Ok(Self(Arc::new(Inner { file, max_stale_age: offline.max_stale_age, records, changed })))
    }

    /// Restores the secrets of the previous process.
    pub(super) async fn load(&self, now: ClockReading) {
        let max_age = self.0.max_stale_age;
        let parse = move |json: &[u8]| deserialize(json, max_age, now);
        let Some((fingerprint, records)) = self.0.file.load(parse).await else { return };
        tracing::info!(
            event = "secrets.resumed",
            secrets = records.len(),
            "secrets of the previous process are restored"
        );
        let mut state = self.0.records.lock();
        (state.fingerprint, state.secrets) = (fingerprint, records);
    }

    /// Returns a secret of the previous process, and its token at that time.
    pub(super) fn find_restored(&self, request: &SecretRequest) -> Option<(SecretRecord, Option<TokenFingerprint>)> {
        let state = self.0.records.lock();
        let record = state.secrets.get(request).filter(|record| record.login.is_none())?;
        Some((record.clone(), state.fingerprint.clone()))
    }

    pub(super) fn insert(&self, request: &SecretRequest, record: SecretRecord) {
        let mut state = self.0.records.lock();
        let is_same = state.secrets.get(request).is_some_and(|old| {
            old.login.is_some() && old.lease.is_none() && record.lease.is_none() && old.data == record.data
        });
        state.secrets.insert(request.clone(), record);
        self.record_change(&mut state, if is_same { ChangeLevel::AgeOnly } else { ChangeLevel::Content });
    }

    pub(super) fn remove(&self, request: &SecretRequest) {
        let mut state = self.0.records.lock();
        if state.secrets.remove(request).is_some() {
            self.record_change(&mut state, ChangeLevel::Content);
        }
    }

    /// Removes the secrets without a request since they were restored.
    pub(super) fn retain(&self, is_used: impl Fn(&SecretRequest) -> bool) {
        let mut state = self.0.records.lock();
        let previous_len = state.secrets.len();
        state.secrets.retain(|request, _| is_used(request));
        if state.secrets.len() < previous_len {
            self.record_change(&mut state, ChangeLevel::Content);
        }
    }

    fn record_change(&self, state: &mut Records, changes: ChangeLevel) {
        if changes > state.changes {
            state.changes = changes;
            self.0.changed.notify_one();
        }
    }

    pub(super) fn writer(&self) -> BackgroundWriter {
        BackgroundWriter::new(self.0.file.clone())
    }

    /// Saves changes for as long as the future is polled.
    pub(super) async fn save_changes(&self, clock: &Clock, tokens: &TokenWatch, writer: &mut BackgroundWriter) {
        loop {
            tokio::select! {
                () = self.0.changed.notified() => writer.schedule(clock.now(), self.0.records.lock().changes),
                () = writer.wait_until_due(clock) => writer.write(self.snapshot(clock.now(), tokens)),
            }
        }
    }

    /// Saves the changes that are not saved yet.
    pub(super) async fn finish(&self, clock: &Clock, tokens: &TokenWatch, mut writer: BackgroundWriter) {
        let changes = self.0.records.lock().changes;
        writer.finish(clock, changes, || self.snapshot(clock.now(), tokens)).await;
    }

    /// Returns the builder of the file's content, and resets the changes.
    fn snapshot(&self, now: ClockReading, tokens: &TokenWatch) -> impl FnOnce() -> Option<Vec<u8>> + Send + use<> {
        let token = tokens.peek().availability.available();
        let (mut secrets, previous) = {
            let mut state = self.0.records.lock();
            state.changes = ChangeLevel::None;
            (state.secrets.clone(), state.fingerprint.clone())
        };
        let login = token.as_ref().map(|token| token.generation);
        // A lease ends with the token that requested it.
        let is_same = token.as_ref().is_none_or(|token| previous.as_ref().is_some_and(|saved| saved.matches(token)));
        secrets.retain(|_, secret| {
            secret.lease.is_none() || if secret.login.is_some() { secret.login == login } else { is_same }
        });
        let fingerprint = token.as_deref().map(TokenFingerprint::new).or(previous);
        move || serialize(&secrets, fingerprint, now)
    }
}

/// Serializes secrets as JSON; `None` where they exceed a file's bounds, which is logged.
pub(super) fn serialize(
    secrets: &BTreeMap<SecretRequest, SecretRecord>,
    fingerprint: Option<TokenFingerprint>,
    now: ClockReading,
) -> Option<Vec<u8>> {
    let secrets = secrets.iter().map(|(request, record)| SavedSecret::new(request, record, now));
    let json = Snapshot::new(now, fingerprint, secrets.collect()).to_json(MAX_CONTENT);
    if json.is_none() {
        tracing::warn!(
            event = "secrets.state.failed",
            code = ErrorCode::StateNotSaved.as_str(),
            content = FileKind::TemplateSecrets.describe(),
            error = "the secrets exceed the size of the file",
            "the state was not saved; a restart may lose it"
        );
    }
    json
}

impl<'a> SavedSecret<'a> {
    fn new(request: &'a SecretRequest, record: &'a SecretRecord, now: ClockReading) -> Self {
        let lease = record.lease.as_ref();
        let lease = lease.map(|(lease, active)| (lease.id.as_str().into(), SavedLease::new(active, now)));
        let request = Cow::Borrowed(request);
        let data = Cow::Borrowed(&*record.data);
        let response_time = time_of_age(record.age(now), now);
        Self { request, response_time, lease, suggested_ttl: record.suggested_ttl.map(|ttl| ttl.as_secs()), data }
    }
}

type RestoredRecords = (Option<TokenFingerprint>, BTreeMap<SecretRequest, SecretRecord>);

/// Parses saved secrets. Leaves out leases that have ended, and other secrets older than `max_age`.
pub(super) fn deserialize(json: &[u8], max_age: Duration, now: ClockReading) -> Result<RestoredRecords, FileRejected> {
    let snapshot = Snapshot::<SavedSecret<'_>>::parse(json, now)?;
    let record = |saved: SavedSecret<'_>| {
        let lease = match saved.lease {
            Some((id, saved_lease)) => {
                let active = saved_lease.restore(now)?;
                Some((SecretLease { id: id.into_owned(), lease: active.initial() }, active))
            }
            None => None,
        };
        let age_at_read = age_of(saved.response_time, now);
        let data = Arc::new(saved.data.into_owned());
        let is_usable = lease.is_some() || age_at_read <= max_age || ContentEnd::parse(&data).is_some();
        let suggested_ttl = saved.suggested_ttl.map(Duration::from_secs);
        let record = SecretRecord { data, read: now, age_at_read, lease, suggested_ttl, login: None };
        is_usable.then(|| (saved.request.into_owned(), record))
    };
    Ok((snapshot.token, snapshot.entries.into_iter().filter_map(record).collect()))
}
