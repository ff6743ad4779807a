//! The secrets of a store as they are to outlive a restart.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use super::encrypted_file::{
    BackgroundWriter, ChangeLevel, EncryptedFile, EncryptedFileError, FileRejected, LARGEST, PersistOptions,
};
use super::lease::{LeaseState, Step, is_certificate};
use super::snapshot_format::{Content, SavedLease, TokenFingerprint, age};
use super::{SecretFields, SecretRequest};
use crate::agent::server_client::SecretLease;
use crate::agent::state_file::KeyPurpose;
use crate::agent::token::{Generation, Lease, TokenWatch};
use crate::clock::{Clock, ClockReading, millis};
use crate::credential_watch::Availability;

/// How the secrets of a store are kept over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineOptions {
    /// Where.
    pub persist: PersistOptions,
    /// How old a secret without a lease may be that is used while the server does not answer.
    pub stale: Duration,
}

/// What is known of each secret. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct PersistedSecrets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: EncryptedFile,
    stale: Duration,
    pages: Mutex<Pages>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pages {
    /// The token of the last process.
    mark: Option<TokenFingerprint>,
    records: BTreeMap<SecretRequest, Record>,
    changes: ChangeLevel,
}

/// What is known of a secret.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) data: Arc<SecretFields>,
    /// When it was read, and how old it was by then.
    pub(super) read: ClockReading,
    pub(super) before: Duration,
    pub(super) lease: Option<(SecretLease, LeaseState, Step)>,
    /// The login that it was read with; `None` for that of the last process.
    pub(super) login: Option<Generation>,
}

impl Record {
    /// Time since it was read.
    pub(super) fn age(&self, now: ClockReading) -> Duration {
        self.before + now.since(self.read)
    }
}

/// One in the file.
#[derive(Serialize, Deserialize)]
struct Saved<'a> {
    request: Cow<'a, SecretRequest>,
    at: u64,
    lease: Option<(Cow<'a, str>, SavedLease)>,
    data: Cow<'a, SecretFields>,
}

impl PersistedSecrets {
    /// An empty one, written to the file. What is in that is taken for the same `bound_to` alone.
    pub(super) fn new(offline: &OfflineOptions, bound_to: &[&str]) -> Result<Self, EncryptedFileError> {
        let file = EncryptedFile::new(&offline.persist, KeyPurpose::Secrets, bound_to)?;
        let (pages, changed) = (Mutex::default(), Notify::new());
        Ok(Self(Arc::new(Inner { file, stale: offline.stale, pages, changed })))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what the last process kept.
    pub(super) async fn load(&self, now: ClockReading) {
        let stale = self.0.stale;
        let Some((mark, records)) = self.0.file.load(move |plain| taken(plain, stale, now)).await else { return };
        tracing::info!(event = "secrets.resumed", secrets = records.len(), "secrets of the last process are taken up");
        let mut pages = self.pages();
        (pages.mark, pages.records) = (mark, records);
    }

    /// What the last process knew of a secret, and its token then.
    pub(super) fn known(&self, request: &SecretRequest) -> Option<(Record, Option<TokenFingerprint>)> {
        let pages = self.pages();
        let record = pages.records.get(request).filter(|record| record.login.is_none())?;
        Some((record.clone(), pages.mark.clone()))
    }

    pub(super) fn write(&self, request: &SecretRequest, record: Record) {
        let mut pages = self.pages();
        let same = pages.records.get(request).is_some_and(|there| {
            there.login.is_some() && there.lease.is_none() && record.lease.is_none() && there.data == record.data
        });
        pages.records.insert(request.clone(), record);
        self.note(&mut pages, if same { ChangeLevel::AgeOnly } else { ChangeLevel::Content });
    }

    pub(super) fn strike(&self, request: &SecretRequest) {
        let mut pages = self.pages();
        if pages.records.remove(request).is_some() {
            self.note(&mut pages, ChangeLevel::Content);
        }
    }

    /// Strikes what nobody has asked for since it was taken up.
    pub(super) fn strike_unclaimed(&self, claimed: impl Fn(&SecretRequest) -> bool) {
        let mut pages = self.pages();
        let before = pages.records.len();
        pages.records.retain(|request, _| claimed(request));
        if pages.records.len() < before {
            self.note(&mut pages, ChangeLevel::Content);
        }
    }

    fn note(&self, pages: &mut Pages, changes: ChangeLevel) {
        if changes > pages.changes {
            pages.changes = changes;
            self.0.changed.notify_one();
        }
    }

    /// What writes it.
    pub(super) fn writer(&self) -> BackgroundWriter {
        BackgroundWriter::new(self.0.file.clone())
    }

    /// Has it written when there is something new, for as long as this is polled.
    pub(super) async fn keep(&self, clock: &Clock, tokens: &TokenWatch, writer: &mut BackgroundWriter) {
        loop {
            tokio::select! {
                () = self.0.changed.notified() => writer.changed(clock.now(), self.pages().changes),
                () = writer.time(clock) => self.save(clock.now(), tokens, writer),
            }
        }
    }

    /// Writes what was not written yet.
    pub(super) async fn finish(&self, clock: &Clock, tokens: &TokenWatch, mut writer: BackgroundWriter) {
        writer.changed(clock.now(), self.pages().changes);
        if writer.settled(clock).await {
            self.save(clock.now(), tokens, &mut writer);
            writer.settled(clock).await;
        }
    }

    fn save(&self, now: ClockReading, tokens: &TokenWatch, writer: &mut BackgroundWriter) {
        let token = match tokens.peek().availability {
            Availability::Available(token) => Some(token),
            Availability::Unavailable { .. } => None,
        };
        let (mut records, before) = {
            let mut pages = self.pages();
            pages.changes = ChangeLevel::None;
            (pages.records.clone(), pages.mark.clone())
        };
        let login = token.as_ref().map(|token| token.generation);
        // What was leased with another token has ended with it.
        let same = token.as_ref().is_none_or(|token| before.as_ref().is_some_and(|mark| mark.is(token)));
        records.retain(|_, its| its.lease.is_none() || if its.login.is_some() { its.login == login } else { same });
        let mark = token.as_deref().map(TokenFingerprint::of).or(before);
        writer.write(move || plain(&records, mark, now));
    }
}

fn plain(
    records: &BTreeMap<SecretRequest, Record>,
    mark: Option<TokenFingerprint>,
    now: ClockReading,
) -> Option<Zeroizing<Vec<u8>>> {
    let wall = millis(now.wall);
    let saved = |(request, record)| saved(request, record, wall, now);
    let content = Content::new(now, mark, records.iter().map(saved).collect());
    let mut room = Room(0);
    if serde_json::to_writer(&mut room, &content).is_err() {
        tracing::warn!(
            event = "secrets.state.failed",
            what = "kept secrets",
            error = "they are more than a file may hold",
            "a restart may lack what is kept now"
        );
        return None;
    }
    let mut plain = Zeroizing::new(Vec::with_capacity(room.0));
    serde_json::to_writer(&mut *plain, &content).ok()?;
    Some(plain)
}

fn saved<'a>(request: &'a SecretRequest, record: &'a Record, wall: u64, now: ClockReading) -> Saved<'a> {
    Saved {
        request: Cow::Borrowed(request),
        at: wall.saturating_sub(u64::try_from(record.age(now).as_millis()).unwrap_or(u64::MAX)),
        lease: record.lease.as_ref().map(|(lease, lease_state, next)| {
            (Cow::Borrowed(lease.id.as_str()), SavedLease::of(lease_state, *next, now))
        }),
        data: Cow::Borrowed(&record.data),
    }
}

/// Counts what is written to it, and takes no more than a file may hold.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > LARGEST { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

type Taken = (Option<TokenFingerprint>, BTreeMap<SecretRequest, Record>);

fn taken(plain: &[u8], stale: Duration, now: ClockReading) -> Result<Taken, FileRejected> {
    let content: Content<Saved<'_>> = serde_json::from_slice(plain).map_err(|_| FileRejected::Shape)?;
    let content = content.in_time(now)?;
    let record = |saved: Saved<'_>| {
        let lease = match saved.lease {
            Some((id, lease_state)) => {
                let (lease_state, next) = lease_state.taken_up(now)?;
                // It is renewed for as long as it was first given.
                let lease = Lease { ttl: lease_state.first, renewable: lease_state.lease.renewable };
                Some((SecretLease { id: id.into_owned(), lease }, lease_state, next))
            }
            None => None,
        };
        let before = age(saved.at, now);
        let data = Arc::new(saved.data.into_owned());
        let usable = lease.is_some() || before <= stale || is_certificate(&data);
        let record = Record { data, read: now, before, lease, login: None };
        usable.then(|| (saved.request.into_owned(), record))
    };
    Ok((content.token, content.kept.into_iter().filter_map(record).collect()))
}
