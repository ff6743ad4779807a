//! The one writer: takes the batches that wait and writes them in one durable transaction.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use redb::{Durability, ReadableTable as _, Table, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::backend::Disk;
use super::checksums::{Checksums, Totals};
use super::recovery::{self, Shared};
use super::tables::{ALL, KINDS, RECORDS, TOTALS, encode, part_in_sum, revisions};
use super::{Batch, Check, CommitError, Key, Revision, StoreError, Write};
use crate::clock::{Clock, ClockReading};

/// A batch, and where its outcome goes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) outcome: oneshot::Sender<Result<Revision, CommitError>>,
}

/// Most batches that share a transaction: bounds what one failure takes along, and the wait of the first.
const GROUP: usize = 512;

/// No batch joins a group of more bytes than this.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// How long a group waits for another batch: much less than a sync takes.
const NAP: Duration = Duration::from_micros(50);

/// How often it does so at the most, while some come.
const NAPS: u8 = 8;

/// After a failure nothing is written for so long, and for ten times as long as it took to open the database anew.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    disk: Disk,
    failure: Option<Failure>,
}

/// The last write failed.
#[derive(Debug)]
struct Failure {
    error: StoreError,
    /// When the next one is tried.
    again: ClockReading,
    /// Whether the database is open for it.
    writable: bool,
}

/// Starts the writer's own thread, which writes until the last sender is gone.
pub(super) fn start(
    shared: Arc<Shared>,
    disk: Disk,
    mut jobs: mpsc::Receiver<Job>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let mut writer = Writer { shared, disk, failure: None };
    std::thread::Builder::new().name("access-store".into()).spawn(move || {
        let mut last = 0;
        while let Some(group) = gather(&mut jobs, last) {
            last = group.len();
            writer.serve(group);
        }
    })
}

/// Everything that came while the group before was written, and what those send who were just answered: without them
/// they would halve each other's groups for ever, one half always waiting for the sync of the other. `last` is how many
/// were in the group before; who writes alone waits for nobody.
fn gather(jobs: &mut mpsc::Receiver<Job>, last: usize) -> Option<Vec<Job>> {
    let first = jobs.blocking_recv()?;
    let mut bytes = first.batch.bytes();
    let mut group = vec![first];
    let mut naps = 0;
    loop {
        let before = group.len();
        while group.len() < GROUP
            && bytes < GROUP_BYTES
            && let Ok(job) = jobs.try_recv()
        {
            bytes += job.batch.bytes();
            group.push(job);
        }
        let nobody_came = naps > 0 && group.len() == before;
        if nobody_came || naps == NAPS || group.len().max(last) == 1 || group.len() == GROUP || bytes >= GROUP_BYTES {
            return Some(group);
        }
        std::thread::sleep(NAP);
        naps += 1;
    }
}

impl Writer {
    fn serve(&mut self, group: Vec<Job>) {
        match self.attempt(&group) {
            Ok(outcomes) => {
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    if outcome.is_ok() {
                        self.shared.watchers.wake(&job.batch.writes);
                    }
                    // Who no longer waits for the outcome does not need it.
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

    fn attempt(&mut self, group: &[Job]) -> Result<Outcomes, CommitError> {
        if let Some(failure) = &self.failure {
            let error = failure.error.clone();
            let due = Clock::System.has_reached(failure.again);
            let sound = self.shared.database().begin_write().is_ok();
            if !sound || (due && !failure.writable) {
                self.reopen(error.clone(), sound);
            }
            let ready = due && self.failure.as_ref().is_some_and(|failure| failure.writable);
            if !ready {
                return Err(error.into());
            }
        }
        let before = self.shared.kinds.last(ALL);
        match write(&self.shared, group) {
            Ok(outcomes) => {
                if self.failure.take().is_some() {
                    tracing::info!(event = "acl.store.recovered", "the store can write again");
                }
                Ok(outcomes)
            }
            Err(NotWritten { error, in_doubt }) => {
                tracing::error!(event = "acl.store.failed", error = %full(&error), "the store could not write");
                let touched = self.disk.header_was_touched();
                let writable = self.reopen(error.clone(), false);
                // What was read anew from a disk that can be written says whether the group is there.
                let is_there = !writable || self.shared.kinds.last(ALL) != before;
                let in_doubt = in_doubt && touched && is_there;
                Err(if in_doubt { CommitError::Unknown(error) } else { error.into() })
            }
        }
    }

    /// Opens the database anew; tells if it can be written.
    fn reopen(&mut self, error: StoreError, readable: bool) -> bool {
        let start = Clock::System.now();
        let writable = recovery::reopen(&self.shared, &mut self.disk, readable).unwrap_or_else(|error| {
            tracing::error!(event = "acl.store.failed", error = %full(&error), "the store could not be opened anew");
            false
        });
        let end = Clock::System.now();
        self.failure = Some(Failure { error, again: end + PAUSE.max(end.since(start) * 10), writable });
        writable
    }
}

fn full(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

type Outcomes = Vec<Result<Revision, CommitError>>;

/// The outcomes of a group, and the revision of the last change and the new totals of each kind that it changes.
struct Applied<'a> {
    outcomes: Outcomes,
    changed: BTreeMap<&'a str, Revision>,
    /// `None` for a kind whose totals are damaged: they stay so, and are found by who verifies.
    totals: BTreeMap<&'a str, Option<Totals>>,
}

/// Why a group was not written, or may not have been.
struct NotWritten {
    error: StoreError,
    in_doubt: bool,
}

impl<E: Into<StoreError>> From<E> for NotWritten {
    fn from(error: E) -> Self {
        Self { error: error.into(), in_doubt: false }
    }
}

fn write(shared: &Shared, group: &[Job]) -> Result<Outcomes, NotWritten> {
    let mut transaction = shared.database().begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let Applied { outcomes, changed, .. } = apply(&transaction, &shared.checksums, group, shared.kinds.last(ALL))?;
    if changed.is_empty() {
        transaction.abort()?;
        return Ok(outcomes);
    }
    let written = group.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
    shared.cache.write(written.flat_map(|(job, _)| job.batch.writes.iter().map(Write::key)));
    let committed = transaction.commit();
    if committed.is_ok() {
        shared.kinds.changed(changed);
    }
    shared.cache.written();
    committed.map_err(|error| NotWritten { error: error.into(), in_doubt: true })?;
    Ok(outcomes)
}

fn apply<'a>(
    transaction: &WriteTransaction,
    checksums: &Checksums,
    group: &'a [Job],
    last: Revision,
) -> Result<Applied<'a>, StoreError> {
    let mut records = transaction.open_table(RECORDS)?;
    let mut totals_table = transaction.open_table(TOTALS)?;
    let mut applied =
        Applied { outcomes: Vec::with_capacity(group.len()), changed: BTreeMap::new(), totals: BTreeMap::new() };
    let mut revision = last;
    for Job { batch, .. } in group {
        let mut seen = match judged(&records, &batch.checks)? {
            Ok(seen) => seen,
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
            if let Entry::Vacant(entry) = applied.totals.entry(key.kind()) {
                let kept = totals_table.get(key.kind())?;
                let kept = kept.map(|kept| Totals::decode(key.kind(), checksums, kept.value()));
                entry.insert(kept.unwrap_or_else(|| Some(Totals::default())));
            }
            let mut totals = applied.totals.get_mut(key.kind()).and_then(Option::as_mut);
            let mut replaced = |bytes: &[u8]| {
                if let Some(totals) = &mut totals {
                    totals.remove(&part_in_sum(key.as_str(), checksums, bytes));
                }
            };
            match write {
                Write::Put(_, value) => {
                    let created = match seen.iter().rfind(|(seen, _)| *seen == key) {
                        Some((_, created)) => *created,
                        None => at(&records, key)?.map(|(created, _)| created),
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
                    seen.push((key, Some(created)));
                }
                Write::Delete(_) => {
                    if let Some(old) = records.remove(key.as_str())? {
                        replaced(old.value());
                    }
                    seen.push((key, None));
                }
            }
            applied.changed.insert(key.kind(), revision);
        }
        applied.outcomes.push(Ok(revision));
    }
    if !applied.changed.is_empty() {
        applied.changed.insert(ALL, revision);
        let mut kinds = transaction.open_table(KINDS)?;
        for (kind, revision) in &applied.changed {
            kinds.insert(kind, revision.0)?;
            if let Some(Some(totals)) = applied.totals.get_mut(kind) {
                totals.revision = *revision;
                totals_table.insert(kind, totals.encode(kind, checksums).as_slice())?;
            }
        }
    }
    Ok(applied)
}

type Records<'a> = Table<'a, &'static str, &'static [u8]>;

/// Keys of a batch, and when their records were created: what a check has read, no write reads again.
type Seen<'a> = Vec<(&'a Key, Option<Revision>)>;

/// What the checks saw, or the key of the first that does not hold.
fn judged<'a>(records: &Records<'_>, checks: &'a [Check]) -> Result<Result<Seen<'a>, Key>, StoreError> {
    let mut seen = Vec::with_capacity(checks.len());
    for check in checks {
        let (Check::Absent(key) | Check::Unchanged(key, _)) = check;
        let found = records.get(key.as_str())?;
        let then = found.as_ref().and_then(|bytes| revisions(bytes.value()));
        let holds = match check {
            Check::Absent(_) => found.is_none(),
            Check::Unchanged(_, at) => then.is_some_and(|(_, modified)| modified == *at),
        };
        if !holds {
            return Ok(Err(key.clone()));
        }
        seen.push((key, then.map(|(created, _)| created)));
    }
    Ok(Ok(seen))
}

/// When a record was created and modified.
fn at(records: &Records<'_>, key: &Key) -> Result<Option<(Revision, Revision)>, StoreError> {
    Ok(records.get(key.as_str())?.and_then(|bytes| revisions(bytes.value())))
}
