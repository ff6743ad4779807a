//! Confirmations of records, from the thread of a device to the requests that wait for them.

use tokio::sync::{mpsc, oneshot};

use super::queue::QueuedRecord;

/// Collects the confirmations of a batch. One message for all of them wakes the runtime's thread once, by one system call.
#[derive(Debug)]
pub(super) struct Confirmations {
    batch: Vec<Confirmation>,
    relay: mpsc::UnboundedSender<Vec<Confirmation>>,
}

/// Requests that are told the outcome of a batch, on the runtime's thread.
#[derive(Debug)]
pub(super) struct ConfirmationRelay(mpsc::UnboundedReceiver<Vec<Confirmation>>);

/// A request that waits, and whether its record was kept.
#[derive(Debug)]
struct Confirmation {
    request: oneshot::Sender<bool>,
    is_kept: bool,
}

impl Confirmations {
    /// Returns the confirmations of a device, and the relay that passes them on.
    pub(super) fn new() -> (Self, ConfirmationRelay) {
        // Bounded by the queue of records: each waits for one.
        let (relay, receiver) = mpsc::unbounded_channel();
        (Self { batch: Vec::new(), relay }, ConfirmationRelay(receiver))
    }

    /// Adds the outcome of a record, if a request waits for it.
    pub(super) fn add(&mut self, record: QueuedRecord, is_kept: bool) {
        self.batch.extend(record.kept.map(|request| Confirmation { request, is_kept }));
    }

    /// Sends the batch.
    pub(super) fn send(&mut self) {
        if !self.batch.is_empty() {
            // Without the relay the runtime is gone, and the requests with it.
            let _ = self.relay.send(std::mem::take(&mut self.batch));
        }
    }
}

impl ConfirmationRelay {
    /// Passes confirmations on until the thread of the device has ended.
    pub(super) async fn run(mut self) {
        while let Some(batch) = self.0.recv().await {
            pass_on(batch);
        }
    }

    /// Passes on what was sent until now.
    #[cfg(test)]
    pub(super) fn pass_on_sent(&mut self) {
        while let Ok(batch) = self.0.try_recv() {
            pass_on(batch);
        }
    }
}

fn pass_on(batch: Vec<Confirmation>) {
    for Confirmation { request, is_kept } in batch {
        // The caller may have gone.
        let _ = request.send(is_kept);
    }
}
