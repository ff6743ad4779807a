//! Writer thread: groups waiting batches into one durable transaction.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::outage::Outage;
use redb::{Durability, ReadableTable as _, Table, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::backend::BackendHandle;
use super::checksums::{Checksums, KindTotals};
use super::recovery::{self, SharedState};
use super::tables::{ALL_KINDS, KINDS, RECORDS, TOTALS, encode, revisions, sum_contribution};
use super::{Batch, Check, CommitError, Key, Revision, StoreError, Write};

/// A batch and the channel for its outcome.
#[derive(Debug)]
pub(super) struct CommitJob {
    pub(super) batch: Batch,
    pub(super) outcome: oneshot::Sender<Result<Revision, CommitError>>,
}

/// Most batches in a transaction: limits the effect of a failure and the wait of the first batch.
const MAX_GROUP: usize = 512;

/// Size in bytes from which a group accepts no more batches.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;

/// Time to wait for another batch: much less than a disk sync.
const GATHER_SLEEP: Duration = Duration::from_micros(50);

/// Most such waits while batches keep arriving.
const MAX_GATHER_SLEEPS: u8 = 8;

/// Pause after a failed write; ten times the duration of reopening the database if that is longer.
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Writer {
    shared: Arc<SharedState>,
    disk: BackendHandle,
    failure: Option<Failure>,
}

/// State after a failed write.
#[derive(Debug)]
struct Failure {
    error: StoreError,
    outage: Outage,
    /// Time of the next attempt.
    retry_at: ClockReading,
    /// True if the database is open for writing.
    writable: bool,
}

/// Starts the writer thread, which runs until all senders are dropped.
pub(super) fn start(
    shared: Arc<SharedState>,
    disk: BackendHandle,
    mut jobs: mpsc::Receiver<CommitJob>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let mut writer = Writer { shared, disk, failure: None };
    // A thread of its own: a disk sync blocks for milliseconds.
    std::thread::Builder::new().name("acl-store".into()).spawn(move || {
        let mut last = 0;
        while let Some(group) = collect_group(&mut jobs, last) {
            last = group.len();
            writer.serve(group);
        }
    })
}

/// Collects the batches that arrived during the previous write, and those of callers that were just answered: otherwise
/// they would alternate in two half-sized groups. `last` is the size of the previous group; a single writer does not
/// wait.
fn collect_group(jobs: &mut mpsc::Receiver<CommitJob>, last: usize) -> Option<Vec<CommitJob>> {
    let first = jobs.blocking_recv()?;
    let mut bytes = first.batch.bytes();
    let mut group = vec![first];
    let mut sleeps = 0;
    loop {
        let previous_length = group.len();
        while group.len() < MAX_GROUP
            && bytes < MAX_GROUP_BYTES
            && let Ok(job) = jobs.try_recv()
        {
            bytes += job.batch.bytes();
            group.push(job);
        }
        let is_quiet = sleeps > 0 && group.len() == previous_length;
        if is_quiet
            || sleeps == MAX_GATHER_SLEEPS
            || group.len().max(last) == 1
            || group.len() == MAX_GROUP
            || bytes >= MAX_GROUP_BYTES
        {
            return Some(group);
        }
        std::thread::sleep(GATHER_SLEEP);
        sleeps += 1;
    }
}

impl Writer {
    fn serve(&mut self, group: Vec<CommitJob>) {
        match self.attempt(&group) {
            Ok(outcomes) => {
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    if outcome.is_ok() {
                        self.shared.watchers.wake(&job.batch.writes);
                    }
                    // The caller may have been cancelled.
                    let _ = job.outcome.send(outcome);
                }
            }
            Err(error) => {
                for job in group {
                    let _ = job.outcome.send(Err(error.clone()));
                }
            }
        }
    }

    fn attempt(&mut self, group: &[CommitJob]) -> Result<Outcomes, CommitError> {
        if let Some(failure) = &self.failure {
            let error = failure.error.clone();
            let due = Clock::System.has_reached(failure.retry_at);
            let is_readable = self.shared.database().begin_write().is_ok();
            if !is_readable || (due && !failure.writable) {
                self.reopen(error.clone(), is_readable);
            }
            let ready = due && self.failure.as_ref().is_some_and(|failure| failure.writable);
            if !ready {
                return Err(error.into());
            }
        }
        let previous_revision = self.shared.kinds.last(ALL_KINDS);
        match write(&self.shared, group) {
            Ok(outcomes) => {
                if let Some(mut failure) = self.failure.take() {
                    let lasted_seconds = failure.outage.record_success(Clock::System.now());
                    tracing::info!(event = "acl.store.recovered", lasted_seconds, "the store is writable again");
                }
                Ok(outcomes)
            }
            Err(WriteFailure { error, in_doubt }) => {
                let code = error.code().as_str();
                tracing::error!(
                    event = "acl.store.failed",
                    code,
                    error = format_chain(&error),
                    "cannot write to the store"
                );
                let header_written = self.disk.header_was_touched();
                let writable = self.reopen(error.clone(), false);
                // The reopened database shows whether the group was written.
                let may_be_written = !writable || self.shared.kinds.last(ALL_KINDS) != previous_revision;
                let in_doubt = in_doubt && header_written && may_be_written;
                Err(if in_doubt { CommitError::Unknown(error) } else { error.into() })
            }
        }
    }

    /// Reopens the database; returns whether it is writable.
    fn reopen(&mut self, error: StoreError, readable: bool) -> bool {
        let start = Clock::System.now();
        let writable = recovery::reopen(&self.shared, &mut self.disk, readable).unwrap_or_else(|error| {
            let code = error.code().as_str();
            tracing::error!(event = "acl.store.failed", code, error = format_chain(&error), "cannot reopen the store");
            false
        });
        let end = Clock::System.now();
        let mut outage = self.failure.take().map(|failure| failure.outage).unwrap_or_default();
        outage.record_failure(start);
        self.failure =
            // Reopening may check the whole file: at most a tenth of the time is spent on it.
            Some(Failure { error, outage, retry_at: end + RETRY_DELAY.max(end.since(start) * 10), writable });
        writable
    }
}

type Outcomes = Vec<Result<Revision, CommitError>>;

/// Outcomes of a group, and the new revision and totals of each changed kind.
#[derive(Default)]
struct Applied<'a> {
    outcomes: Outcomes,
    changed: BTreeMap<&'a str, Revision>,
    /// `None` for a kind with damaged totals: they stay damaged and a verification reports them.
    totals: BTreeMap<&'a str, Option<KindTotals>>,
}

/// Error of writing a group.
struct WriteFailure {
    error: StoreError,
    in_doubt: bool,
}

impl<E: Into<StoreError>> From<E> for WriteFailure {
    fn from(error: E) -> Self {
        Self { error: error.into(), in_doubt: false }
    }
}

fn write(shared: &SharedState, group: &[CommitJob]) -> Result<Outcomes, WriteFailure> {
    let mut transaction = shared.database().begin_write()?;
    // `Store::commit` promises that acknowledged writes survive a crash.
    transaction.set_durability(Durability::Immediate)?;
    let Applied { outcomes, changed, .. } =
        apply(&transaction, &shared.checksums, group, shared.kinds.last(ALL_KINDS))?;
    if changed.is_empty() {
        transaction.abort()?;
        return Ok(outcomes);
    }
    let written = group.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
    // From here to `end_write` readers may still find the old values, and must not cache them.
    shared.cache.begin_write(written.flat_map(|(job, _)| job.batch.writes.iter().map(Write::key)));
    let committed = transaction.commit();
    if committed.is_ok() {
        // Before the watchers wake: they compare with these revisions.
        shared.kinds.record(changed);
    }
    shared.cache.end_write();
    committed.map_err(|error| WriteFailure { error: error.into(), in_doubt: true })?;
    Ok(outcomes)
}

fn apply<'a>(
    transaction: &WriteTransaction,
    checksums: &Checksums,
    group: &'a [CommitJob],
    last: Revision,
) -> Result<Applied<'a>, StoreError> {
    let mut records = transaction.open_table(RECORDS)?;
    let mut totals_table = transaction.open_table(TOTALS)?;
    let mut applied = Applied::default();
    let mut revision = last;
    for CommitJob { batch, .. } in group {
        let mut created_revisions = match evaluate_checks(&records, &batch.checks)? {
            Ok(created_revisions) => created_revisions,
            Err(conflict) => {
                applied.outcomes.push(Err(CommitError::Conflict(conflict)));
                continue;
            }
        };
        if !batch.writes.is_empty() {
            revision.0 += 1;
        }
        for write in &batch.writes {
            let key = write.key();
            let totals = match applied.totals.entry(key.kind()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(read_totals(&totals_table, key.kind(), checksums)?),
            };
            let mut totals = totals.as_mut();
            let mut replaced = |bytes: &[u8]| {
                if let Some(totals) = &mut totals {
                    totals.remove(&sum_contribution(key.as_str(), checksums, bytes));
                }
            };
            match write {
                Write::Put(_, value) => {
                    let created = match created_revisions.iter().rfind(|(written, _)| *written == key) {
                        Some((_, created)) => *created,
                        None => record_revisions(&records, key)?.map(|(created, _)| created),
                    };
                    let created = created.unwrap_or(revision);
                    let checksum = checksums.record(key.as_str(), created, revision, value);
                    let bytes = encode(created, revision, &checksum, value);
                    if let Some(old) = records.insert(key.as_str(), bytes.as_slice())? {
                        replaced(old.value());
                    }
                    if let Some(totals) = &mut totals {
                        totals.add(&checksum);
                    }
                    created_revisions.push((key, Some(created)));
                }
                Write::Delete(_) => {
                    if let Some(old) = records.remove(key.as_str())? {
                        replaced(old.value());
                    }
                    created_revisions.push((key, None));
                }
            }
            applied.changed.insert(key.kind(), revision);
        }
        applied.outcomes.push(Ok(revision));
    }
    if !applied.changed.is_empty() {
        applied.changed.insert(ALL_KINDS, revision);
        write_kinds(&mut transaction.open_table(KINDS)?, &mut totals_table, &mut applied, checksums)?;
    }
    Ok(applied)
}

/// Reads the totals of a kind; `None` if they are damaged.
fn read_totals(table: &Records<'_>, kind: &str, checksums: &Checksums) -> Result<Option<KindTotals>, StoreError> {
    let stored = table.get(kind)?;
    Ok(stored.map_or_else(|| Some(KindTotals::default()), |stored| KindTotals::decode(kind, checksums, stored.value())))
}

/// Writes the revisions and totals of the kinds that changed.
fn write_kinds(
    kinds: &mut Table<'_, &'static str, u64>,
    totals_table: &mut Records<'_>,
    applied: &mut Applied<'_>,
    checksums: &Checksums,
) -> Result<(), StoreError> {
    for (kind, revision) in &applied.changed {
        kinds.insert(kind, revision.0)?;
        if let Some(Some(totals)) = applied.totals.get_mut(kind) {
            totals.revision = *revision;
            totals_table.insert(kind, totals.encode(kind, checksums).as_slice())?;
        }
    }
    Ok(())
}

type Records<'a> = Table<'a, &'static str, &'static [u8]>;

/// Keys of a batch and the creation revisions of their records, read by checks and reused by writes.
type CreatedRevisions<'a> = Vec<(&'a Key, Option<Revision>)>;

/// Evaluates the checks; returns what they read, or the key of the first that failed.
fn evaluate_checks<'a>(
    records: &Records<'_>,
    checks: &'a [Check],
) -> Result<Result<CreatedRevisions<'a>, Key>, StoreError> {
    let mut created_revisions = Vec::with_capacity(checks.len());
    for check in checks {
        let (Check::Absent(key) | Check::Unchanged(key, _)) = check;
        let record = records.get(key.as_str())?;
        let then = record.as_ref().and_then(|bytes| revisions(bytes.value()));
        let is_satisfied = match check {
            Check::Absent(_) => record.is_none(),
            Check::Unchanged(_, at) => then.is_some_and(|(_, modified)| modified == *at),
        };
        if !is_satisfied {
            return Ok(Err(key.clone()));
        }
        created_revisions.push((key, then.map(|(created, _)| created)));
    }
    Ok(Ok(created_revisions))
}

/// Reads the creation and modification revision of a record.
fn record_revisions(records: &Records<'_>, key: &Key) -> Result<Option<(Revision, Revision)>, StoreError> {
    Ok(records.get(key.as_str())?.and_then(|bytes| revisions(bytes.value())))
}
