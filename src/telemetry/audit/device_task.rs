//! Task of an audit device on the runtime: wakes the device's thread for the requests that wait, and reports the outcome to them.

use tokio::sync::{mpsc, oneshot};

use super::queue::{QueuedRecord, RecordQueue};

/// Collects the confirmations of a batch. One message for all of them wakes the runtime's thread once, by one system call.
#[derive(Debug)]
pub(super) struct Confirmations {
    batch: Vec<Confirmation>,
    task: mpsc::UnboundedSender<Vec<Confirmation>>,
}

/// Task of a device on the runtime: between the requests that wait and the device's thread.
#[derive(Debug)]
pub(super) struct DeviceTask {
    batches: mpsc::UnboundedReceiver<Vec<Confirmation>>,
    queue: RecordQueue,
}

/// A request that waits, and whether its record was kept.
#[derive(Debug)]
struct Confirmation {
    request: oneshot::Sender<bool>,
    is_kept: bool,
}

impl Confirmations {
    /// Returns the confirmations of a device, and its task.
    pub(super) fn new(queue: RecordQueue) -> (Self, DeviceTask) {
        // Bounded by the queue of records: each waits for one.
        let (task, batches) = mpsc::unbounded_channel();
        (Self { batch: Vec::new(), task }, DeviceTask { batches, queue })
    }

    /// Adds the outcome of a record, if a request waits for it.
    pub(super) fn add(&mut self, record: QueuedRecord, is_kept: bool) {
        self.batch.extend(record.confirmation.map(|request| Confirmation { request, is_kept }));
    }

    /// Sends the batch.
    pub(super) fn send(&mut self) {
        if !self.batch.is_empty() {
            // Without the task the runtime is gone, and the requests with it.
            let _ = self.task.send(std::mem::take(&mut self.batch));
        }
    }
}

impl DeviceTask {
    /// Runs until the thread of the device has ended and its last confirmations are passed on.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                batch = self.batches.recv() => {
                    let Some(batch) = batch else { break };
                    for Confirmation { request, is_kept } in batch {
                        // The caller may have gone.
                        let _ = request.send(is_kept);
                    }
                }
                () = self.queue.flush_requested() => {
                    self.gather().await;
                    self.queue.flush();
                }
            }
        }
    }

    /// Lets requests that are ready go first while they add records, which then share the write, and the switches to the
    /// thread and back.
    async fn gather(&self) {
        let mut queued = self.queue.len();
        for _ in 0..GATHER_TURNS {
            tokio::task::yield_now().await;
            let now = self.queue.len();
            if now == queued {
                break;
            }
            queued = now;
        }
    }
}

/// Maximum number of turns of the runtime for which a record that a request waits for is held back.
const GATHER_TURNS: usize = 8;
