//! Bounded queue of one audit device, which its thread empties.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::record::AuditRecord;

/// Queue of records. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Notified when a request waits for its record.
    flush_requested: Notify,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<QueuedRecord>,
    /// Records that found the queue full.
    lost_records: u64,
    reopen: bool,
    stop: bool,
    /// A request waits for one of the records, or they fill a batch.
    is_urgent: bool,
    wait: WakeCondition,
}

/// Event that the thread waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum WakeCondition {
    /// The thread is busy.
    #[default]
    Nothing,
    /// The first record.
    QueuedWork,
    /// Something that must not wait until the records are due.
    UrgentWork,
}

/// A record and its time.
#[derive(Debug)]
pub(super) struct QueuedRecord {
    pub(super) at: SystemTime,
    pub(super) record: AuditRecord,
    /// Receives true once the record is written; closed if nobody waits.
    pub(super) confirmation: Option<oneshot::Sender<bool>>,
}

/// Share of the queue that a record may fill. Records that a caller can cause without being admitted leave room for the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueShare {
    /// May fill the queue: `CAPACITY` records.
    Full,
    /// May fill half of it: `CAPACITY / 2` records.
    Half,
}

/// Work for the device.
#[derive(Debug, Default)]
pub(super) struct QueuedWork {
    pub(super) records: Vec<QueuedRecord>,
    pub(super) lost_records: u64,
    pub(super) reopen: bool,
    pub(super) stop: bool,
}

impl RecordQueue {
    /// Queues a record. Returns false if the queue is full, and counts the record as lost.
    pub(super) fn push(&self, record: QueuedRecord, share: QueueShare) -> bool {
        let mut state = self.0.state.lock();
        let limit = if share == QueueShare::Full { CAPACITY } else { CAPACITY / 2 };
        let fits = state.records.len() < limit && !state.stop;
        if fits {
            state.records.push_back(record);
            state.is_urgent |= state.records.len() >= BATCH;
        } else {
            state.lost_records += 1;
        }
        self.wake(state);
        fits
    }

    /// Makes the device's task call [`RecordQueue::flush`], because a request waits for its record.
    pub(super) fn request_flush(&self) {
        self.0.flush_requested.notify_one();
    }

    /// Waits until a flush is requested.
    pub(super) async fn flush_requested(&self) {
        self.0.flush_requested.notified().await;
    }

    /// Returns the number of queued records.
    pub(super) fn len(&self) -> usize {
        self.0.state.lock().records.len()
    }

    /// Makes the device write queued records.
    pub(super) fn flush(&self) {
        let mut state = self.0.state.lock();
        state.is_urgent |= !state.records.is_empty();
        self.wake(state);
    }

    /// Has the device reopen its file if another one is at its path.
    pub(super) fn reopen(&self) {
        let mut state = self.0.state.lock();
        state.reopen = true;
        self.wake(state);
    }

    /// Makes the device write queued records and stop.
    pub(super) fn stop(&self) {
        let mut state = self.0.state.lock();
        state.stop = true;
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let wakes = match state.wait {
            WakeCondition::Nothing => false,
            WakeCondition::QueuedWork => true,
            WakeCondition::UrgentWork => state.is_due(),
        };
        if wakes {
            // Notify once: each further call would be a useless system call until the thread runs.
            state.wait = WakeCondition::Nothing;
            drop(state);
            self.0.changed.notify_one();
        }
    }

    /// Waits for work, at most until `timeout`. Collects records without a waiter for a moment, to write several at once.
    pub(super) fn take(&self, timeout: Option<Duration>) -> QueuedWork {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut collected = Instant::now() + COLLECT_TIME;
        let mut state = self.0.state.lock();
        while !state.is_due() {
            let now = Instant::now();
            let is_collecting = now < collected;
            if end.is_some_and(|end| end <= now) || !(is_collecting || state.records.is_empty()) {
                break;
            }
            let until = is_collecting.then_some(collected).into_iter().chain(end).min();
            state.wait = if is_collecting { WakeCondition::UrgentWork } else { WakeCondition::QueuedWork };
            match until {
                None => self.0.changed.wait(&mut state),
                Some(until) => drop(self.0.changed.wait_for(&mut state, until - now)),
            }
            state.wait = WakeCondition::Nothing;
            if !is_collecting {
                collected = Instant::now() + COLLECT_TIME;
            }
        }
        let count = state.records.len().min(BATCH);
        let records = state.records.drain(..count).collect();
        // Those that remain were too many for one batch.
        state.is_urgent = !state.records.is_empty();
        QueuedWork {
            records,
            lost_records: std::mem::take(&mut state.lost_records),
            reopen: std::mem::take(&mut state.reopen),
            stop: state.stop && state.records.is_empty(),
        }
    }
}

impl State {
    /// Returns true if there is work that must not wait.
    const fn is_due(&self) -> bool {
        self.is_urgent || self.reopen || self.stop
    }
}

/// Time for which records are collected if nobody waits for them.
const COLLECT_TIME: Duration = Duration::from_millis(5);

/// Maximum number of queued records: about 8 MiB, if each has the longest path.
const CAPACITY: usize = 4096;

/// Maximum number of records written at once.
const BATCH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::record;

    fn queued() -> QueuedRecord {
        QueuedRecord { at: SystemTime::UNIX_EPOCH, record: record(1), confirmation: None }
    }

    #[test]
    fn a_full_queue_loses_records_and_counts_them_and_refusals_leave_half_of_it() {
        let queue = RecordQueue::default();
        let push = |share, times: usize| (0..times).filter(|_| queue.push(queued(), share)).count();
        assert_eq!(push(QueueShare::Half, CAPACITY), CAPACITY / 2);
        assert_eq!(push(QueueShare::Full, CAPACITY), CAPACITY / 2);
        let work = queue.take(None);
        assert_eq!((work.records.len(), work.lost_records, work.stop), (BATCH, CAPACITY as u64, false));
        queue.stop();
        assert_eq!(push(QueueShare::Full, 1), 0, "nothing is taken after the stop");
        let mut rest = 0;
        loop {
            let work = queue.take(None);
            rest += work.records.len();
            if work.stop {
                break;
            }
        }
        assert_eq!(rest, CAPACITY - BATCH);
    }

    #[test]
    fn while_records_are_collected_only_a_request_that_waits_or_a_full_batch_wakes_the_thread() {
        let queue = RecordQueue::default();
        let waits = |wait, change: &dyn Fn()| {
            queue.0.state.lock().wait = wait;
            change();
            queue.0.state.lock().wait == wait
        };
        let push = || assert!(queue.push(queued(), QueueShare::Full));
        assert!(waits(WakeCondition::UrgentWork, &|| queue.flush()), "nothing is queued");
        assert!(!waits(WakeCondition::QueuedWork, &push), "the first record begins the collection");
        assert!(waits(WakeCondition::UrgentWork, &push));
        assert!(!waits(WakeCondition::UrgentWork, &|| queue.flush()));
        assert_eq!(queue.take(None).records.len(), 2);
        (1..BATCH).for_each(|_| assert!(waits(WakeCondition::UrgentWork, &push)));
        assert!(!waits(WakeCondition::UrgentWork, &push));
        assert_eq!(queue.take(None).records.len(), BATCH);
        push();
        assert_eq!(queue.take(None).records.len(), 1, "a collection ends");
        assert_eq!(queue.take(Some(Duration::ZERO)).records.len(), 0);
    }
}
