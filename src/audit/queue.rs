//! Bounded queue of one audit device, which its thread empties.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use super::record::AuditRecord;

/// Queue of records. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<QueuedRecord>,
    /// Records that found the queue full.
    lost: u64,
    reopen: bool,
    stop: bool,
    /// The thread waits, and must be woken.
    is_waiting: bool,
}

/// A record and its time.
#[derive(Debug)]
pub(super) struct QueuedRecord {
    pub(super) at: SystemTime,
    pub(super) record: Arc<AuditRecord>,
    /// Told true when the record is kept. Closed where nobody waits any more.
    pub(super) kept: Option<oneshot::Sender<bool>>,
}

/// Weight of a record: those that a caller can cause without being admitted leave room for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// May fill the queue.
    Whole,
    /// May fill half of it.
    Half,
}

/// Work for the device.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) records: Vec<QueuedRecord>,
    pub(super) lost: u64,
    pub(super) reopen: bool,
    pub(super) stop: bool,
}

impl RecordQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a record. Returns false if the queue is full, and counts the record as lost.
    pub(super) fn push(&self, record: QueuedRecord, share: Share) -> bool {
        let mut state = self.state();
        let limit = if share == Share::Whole { CAPACITY } else { CAPACITY / 2 };
        let fits = state.records.len() < limit && !state.stop;
        if fits {
            state.records.push_back(record);
        } else {
            state.lost += 1;
        }
        self.wake(state);
        fits
    }

    /// Has the device open its file anew if another one stands at its path.
    pub(super) fn reopen(&self) {
        let mut state = self.state();
        state.reopen = true;
        self.wake(state);
    }

    /// Has the device write what is queued, and end.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stop = true;
        self.wake(state);
    }

    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_waiting = state.is_waiting;
        drop(state);
        if is_waiting {
            self.0.changed.notify_one();
        }
    }

    /// Waits for work, at most until `timeout`.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Work {
        let idle = |state: &mut State| {
            state.is_waiting = state.records.is_empty() && !state.reopen && !state.stop;
            state.is_waiting
        };
        let (state, changed) = (self.state(), &self.0.changed);
        let mut state = match timeout {
            None => changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => changed.wait_timeout_while(state, timeout, idle).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.is_waiting = false;
        let count = state.records.len().min(BATCH);
        Work {
            records: state.records.drain(..count).collect(),
            lost: std::mem::take(&mut state.lost),
            reopen: std::mem::take(&mut state.reopen),
            stop: state.stop && state.records.is_empty(),
        }
    }
}

/// Records that wait at most: about 8 MiB, if each has the longest path.
const CAPACITY: usize = 4096;

/// Records that are written at once at most.
const BATCH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::record;

    fn queued() -> QueuedRecord {
        QueuedRecord { at: SystemTime::UNIX_EPOCH, record: Arc::new(record(1)), kept: None }
    }

    #[test]
    fn a_full_queue_loses_records_and_counts_them_and_refusals_leave_half_of_it() {
        let queue = RecordQueue::default();
        let push = |share, times: usize| (0..times).filter(|_| queue.push(queued(), share)).count();
        assert_eq!(push(Share::Half, CAPACITY), CAPACITY / 2);
        assert_eq!(push(Share::Whole, CAPACITY), CAPACITY / 2);
        let work = queue.take(None);
        assert_eq!((work.records.len(), work.lost, work.stop), (BATCH, CAPACITY as u64, false));
        queue.stop();
        assert_eq!(push(Share::Whole, 1), 0, "nothing is taken after the stop");
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
}
