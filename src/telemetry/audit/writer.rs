//! Thread of one audit device: chains queued records and writes them in batches.

use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::Clock;
use tokio::time::Instant;

use super::checkpoint::CheckpointExport;
use super::device::{Device, DeviceError, ResumedChain, WritePosition};
use super::device_report::DeviceReport;
use super::device_task::Confirmations;
use super::key::AuditKey;
use super::line::{Batch, ChainPosition, ESTIMATED_LINE, LineWriter};
use super::options::AuditOptions;
use super::queue::{QueuedRecord, QueuedWork, RecordQueue};
use super::record::{ChainHeader, ChainRecord, PreviousEnd};
use crate::health::HealthHandle;
use crate::metrics::Metrics;

/// Writes the records of one device, and reports failures.
#[derive(Debug)]
pub(super) struct AuditWriter {
    name: String,
    device: Device,
    lines: LineWriter,
    chain: Arc<str>,
    position: ChainPosition,
    /// Position before a line that is incomplete on its connection.
    before_partial: Option<ChainPosition>,
    /// The start record, until it is written.
    start: StartRecord,
    /// Records lost since the last record of a loss.
    lost_records: u64,
    /// A write has not reached the disk since.
    unsynced: Option<Instant>,
    /// The last write failed. The device works again once one succeeds, whatever can be synced meanwhile.
    is_write_failing: bool,
    /// The last sync failed; independent of `is_write_failing`.
    is_sync_failing: bool,
    checkpoints: CheckpointExport,
    confirmations: Confirmations,
    report: DeviceReport,
}

/// Progress of the first record.
#[derive(Debug)]
enum StartRecord {
    /// The end of the process before is not known yet.
    Unread,
    Unwritten {
        previous: PreviousEnd,
        torn_bytes: u64,
    },
    Written,
}

impl AuditWriter {
    pub(super) fn new(
        options: &AuditOptions,
        confirmations: Confirmations,
        health: HealthHandle,
        metrics: &Metrics,
        clock: Clock,
    ) -> Self {
        Self {
            name: options.name.clone(),
            device: Device::new(&options.target),
            lines: LineWriter::new(AuditKey::new(&options.key)),
            chain: random_name(),
            position: ChainPosition::default(),
            before_partial: None,
            start: StartRecord::Unread,
            lost_records: 0,
            unsynced: None,
            is_write_failing: false,
            is_sync_failing: false,
            checkpoints: CheckpointExport::new(options),
            confirmations,
            report: DeviceReport::new(options, health, metrics, clock),
        }
    }

    /// Writes until the queue is stopped.
    pub(super) fn run(mut self, queue: &RecordQueue) {
        // The start record does not wait for the first request: it says when the process began to watch.
        self.write(Vec::new(), false);
        loop {
            let QueuedWork { records, lost_records, reopen, stop } = queue.take(self.next_deadline());
            self.count_lost(lost_records);
            if reopen {
                self.device.reopen();
            }
            if !records.is_empty() || reopen || self.retries() {
                self.write(records, false);
            }
            if stop {
                self.write(Vec::new(), true);
                break;
            }
            self.do_due_work(false);
        }
        self.do_due_work(true);
    }

    /// Returns true if a failing device is tried again without a request: a caller that waits for readiness may send none.
    fn retries(&self) -> bool {
        self.report.is_failing() || !matches!(self.start, StartRecord::Written)
    }

    /// Time to the next sync, checkpoint or retry.
    fn next_deadline(&self) -> Option<Duration> {
        let sync = self.unsynced.map(|since| SYNC_INTERVAL.saturating_sub(since.elapsed()));
        let retry = self.retries().then_some(RETRY_INTERVAL);
        [sync.or_else(|| self.checkpoints.time_to_next()), retry].into_iter().flatten().min()
    }

    /// Syncs and exports what is due; everything at the end.
    fn do_due_work(&mut self, at_end: bool) {
        if self.unsynced.is_some_and(|since| at_end || since.elapsed() >= SYNC_INTERVAL) {
            let synced = self.device.sync();
            self.unsynced = synced.is_err().then(Instant::now);
            self.is_sync_failing = synced.is_err();
            self.report_outcome(synced.err());
        }
        // A checkpoint of records that a power loss takes away would look like a cut tail: it waits for the sync.
        if self.unsynced.is_none() && self.checkpoints.is_due(at_end) {
            // An incomplete line may be lost with its connection, and its record is then replaced by another.
            self.checkpoints.export(&self.chain, &self.before_partial.unwrap_or(self.position));
        }
    }

    fn write(&mut self, mut records: Vec<QueuedRecord>, stops: bool) {
        let record_count = records.len();
        // The requests of the others were refused already.
        records.retain(|record| record.confirmation.as_ref().is_none_or(|confirmation| !confirmation.is_closed()));
        self.count_lost((record_count - records.len()) as u64);
        let prepared = self.resume().and_then(|()| self.device.prepare((ESTIMATED_LINE * (records.len() + 2)) as u64));
        if self.device.take_lost_partial()
            && let Some(before) = self.before_partial.take()
        {
            self.position = before;
            self.count_lost(1);
        }
        match prepared {
            Err(error) => {
                self.report_write(Some(error));
                self.refuse(records);
            }
            Ok(prepared) => {
                // The rest of the line has been sent, or was lost.
                self.before_partial = None;
                self.write_batch(records, prepared, stops);
            }
        }
        self.confirmations.send();
    }

    fn write_batch(&mut self, mut records: Vec<QueuedRecord>, prepared: WritePosition, stops: bool) {
        let leading = self.leading_records(prepared);
        let batch = Batch::new(&mut self.lines, self.position, &leading, &records, stops);
        if batch.ends.is_empty() {
            self.report_write(None);
            return;
        }
        let written = self.device.write(&batch.bytes, &batch.ends);
        let chained = written.lines + usize::from(written.is_partial);
        self.before_partial = written.is_partial.then(|| batch.position_after(written.lines));
        if chained > 0 {
            self.position = batch.position_after(chained);
            self.start = StartRecord::Written;
            self.unsynced.get_or_insert_with(Instant::now);
            self.checkpoints.count(chained as u64);
        }
        if leading.iter().take(written.lines).any(|record| matches!(record, ChainRecord::Lost { .. })) {
            self.lost_records = 0;
        }
        let mut unwritten = records.split_off(written.lines.saturating_sub(batch.leads).min(records.len()));
        if written.is_partial && written.lines >= batch.leads && !unwritten.is_empty() {
            // Its rest follows before anything else, so that it is not lost; its request does not wait for that.
            let partial = unwritten.remove(0);
            self.confirmations.add(partial, false);
        }
        self.report.count_kept(records.len() as u64);
        for record in records {
            self.confirmations.add(record, true);
        }
        self.report_write(written.error);
        self.refuse(unwritten);
    }

    fn report_write(&mut self, error: Option<DeviceError>) {
        self.is_write_failing = error.is_some();
        self.report_outcome(error);
    }

    /// Reports a write or a sync: a failure, or that the device works.
    fn report_outcome(&mut self, error: Option<DeviceError>) {
        match error {
            Some(error) => self.report.fail(&error),
            None if self.is_write_failing || self.is_sync_failing => {}
            None => self.report.succeed(),
        }
    }

    /// Records about the chain that come before those of requests.
    fn leading_records(&self, prepared: WritePosition) -> Vec<ChainRecord> {
        let header = || ChainHeader { chain: Arc::clone(&self.chain).into(), prev: self.position.mac.hex() };
        let mut leading = Vec::new();
        match self.start {
            StartRecord::Unwritten { previous, torn_bytes } => leading.push(ChainRecord::Start {
                header: header(),
                version: env!("CARGO_PKG_VERSION"),
                pid: std::process::id(),
                previous,
                torn_bytes,
            }),
            StartRecord::Unread | StartRecord::Written if prepared == WritePosition::Reopened => {
                leading.push(ChainRecord::Continue { header: header() });
            }
            StartRecord::Unread | StartRecord::Written => {}
        }
        if self.lost_records > 0 {
            leading.push(ChainRecord::Lost { records: self.lost_records });
        }
        leading
    }

    /// Reads the end of the previous process's file, once.
    fn resume(&mut self) -> Result<(), DeviceError> {
        if !matches!(self.start, StartRecord::Unread) {
            return Ok(());
        }
        let Device::File(file) = &mut self.device else {
            self.start = StartRecord::Unwritten { previous: PreviousEnd::None, torn_bytes: 0 };
            return Ok(());
        };
        let ResumedChain { chain, previous, torn_bytes } = file.resume(self.lines.key())?;
        if let Some((chain, position)) = chain {
            (self.chain, self.position) = (chain.into(), position);
        }
        if previous == PreviousEnd::Unverified {
            tracing::warn!(
                event = "audit.chain.unverified",
                audit = self.name,
                "the end of the audit file does not verify with this key; moved the file away and started a new chain"
            );
        }
        self.start = StartRecord::Unwritten { previous, torn_bytes };
        Ok(())
    }

    fn refuse(&mut self, records: Vec<QueuedRecord>) {
        self.count_lost(records.len() as u64);
        for record in records {
            self.confirmations.add(record, false);
        }
    }

    fn count_lost(&mut self, records: u64) {
        self.lost_records += records;
        self.report.count_lost(records);
    }
}

/// A random name of a chain.
fn random_name() -> Arc<str> {
    let mut bytes = [0; 16];
    // Without randomness names may repeat; then checkpoints of two chains cannot be told apart, and nothing else.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    crate::hex::encode_hex(&bytes).into()
}

/// Time until written records reach the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two attempts while the device fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
