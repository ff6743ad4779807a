//! The one writer: takes the batches that wait and writes them in one durable transaction.

use std::sync::Arc;

use redb::{Database, Durability, ReadableTable as _, Table, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::tables::{ALL, KINDS, RECORDS, decode, encode};
use super::watchers::Watchers;
use super::{Batch, Check, CommitError, Record, Revision, StoreError, Write};

/// A batch, and where its outcome goes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) outcome: oneshot::Sender<Result<Revision, CommitError>>,
}

/// Most batches that share a transaction: bounds what one failure takes along, and the wait of the first.
const GROUP: usize = 512;

/// Writes until the last sender is gone.
pub(super) fn run(database: &Database, mut jobs: mpsc::Receiver<Job>, watchers: &Watchers) {
    while let Some(first) = jobs.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(job) = jobs.try_recv()
        {
            group.push(job);
        }
        match write(database, &group) {
            Ok(outcomes) => {
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    if outcome.is_ok() {
                        watchers.wake(&job.batch.writes);
                    }
                    // Who no longer waits for the outcome does not need it.
                    let _ = job.outcome.send(outcome);
                }
            }
            Err(error) => {
                tracing::error!(event = "access.store.failed", error = %full(&error), "the store could not write");
                for job in group {
                    let _ = job.outcome.send(Err(error.clone().into()));
                }
            }
        }
    }
}

fn full(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

type Outcomes = Vec<Result<Revision, CommitError>>;

fn write(database: &Database, group: &[Job]) -> Result<Outcomes, StoreError> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let outcomes = apply(&transaction, group)?;
    if outcomes.iter().any(Result::is_ok) {
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(outcomes)
}

fn apply(transaction: &WriteTransaction, group: &[Job]) -> Result<Outcomes, StoreError> {
    let mut records = transaction.open_table(RECORDS)?;
    let mut kinds = transaction.open_table(KINDS)?;
    let mut revision = Revision(kinds.get(ALL)?.map_or(0, |last| last.value()));
    let mut outcomes = Vec::with_capacity(group.len());
    for Job { batch, .. } in group {
        if let Some(conflict) = conflict(&records, &batch.checks)? {
            outcomes.push(Err(CommitError::Conflict(conflict)));
            continue;
        }
        if !batch.writes.is_empty() {
            revision.0 += 1;
        }
        for write in &batch.writes {
            let key = match write {
                Write::Put(key, value) => {
                    let created = read(&records, key.as_str())?.map_or(revision, |before| before.created);
                    records.insert(key.as_str(), encode(created, revision, value).as_slice())?;
                    key
                }
                Write::Delete(key) => {
                    records.remove(key.as_str())?;
                    key
                }
            };
            kinds.insert(key.kind(), revision.0)?;
        }
        outcomes.push(Ok(revision));
    }
    kinds.insert(ALL, revision.0)?;
    Ok(outcomes)
}

fn conflict(
    records: &Table<'_, &'static str, &'static [u8]>,
    checks: &[Check],
) -> Result<Option<super::Key>, StoreError> {
    for check in checks {
        let (key, holds) = match check {
            Check::Absent(key) => (key, read(records, key.as_str())?.is_none()),
            Check::Unchanged(key, at) => (key, read(records, key.as_str())?.is_some_and(|it| it.modified == *at)),
        };
        if !holds {
            return Ok(Some(key.clone()));
        }
    }
    Ok(None)
}

fn read(records: &Table<'_, &'static str, &'static [u8]>, key: &str) -> Result<Option<Record>, StoreError> {
    records.get(key)?.map(|bytes| decode(key, bytes.value())).transpose()
}

/// Starts the writer's own thread, which ends after the last sender is dropped.
pub(super) fn start(
    database: Arc<Database>,
    jobs: mpsc::Receiver<Job>,
    watchers: Arc<Watchers>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("access-store".into()).spawn(move || run(&database, jobs, &watchers))
}
