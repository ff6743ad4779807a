//! Thread of one audit device: takes records from the queue, chains them, and writes them in batches.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::checkpoint_export::CheckpointExport;
use super::device::Device;
use super::device_result::{DeviceError, Prepared, Resumed};
use super::key::AuditKey;
use super::line::{ChainPosition, LineWriter};
use super::metrics::{AuditLabels, AuditMetrics, AuditOutcomeLabels};
use super::options::{AuditOptions, OnFailure};
use super::queue::{QueuedRecord, RecordQueue, Work};
use super::record::{ChainHeader, ChainRecord, PreviousEnd};
use crate::clock::Clock;
use crate::health::HealthHandle;
use crate::metrics::Metrics;
use crate::outage::Outage;

/// Writes the records of one device, and tells what fails.
#[derive(Debug)]
pub(super) struct AuditWriter {
    name: String,
    on_failure: OnFailure,
    device: Device,
    lines: LineWriter,
    chain: Arc<str>,
    position: ChainPosition,
    /// Position before a line that is incomplete on its connection.
    before_partial: Option<ChainPosition>,
    /// The start record, until it is written.
    start: Start,
    /// Records that were lost since one said so.
    lost: u64,
    /// A write has not reached the disk since.
    unsynced: Option<Instant>,
    checkpoints: CheckpointExport,
    report: Reporter,
}

/// Progress of the first record.
#[derive(Debug)]
enum Start {
    /// The end of the process before is not known yet.
    Unread,
    Unwritten {
        previous: PreviousEnd,
        torn_bytes: u64,
    },
    Written,
}

/// Health, metrics and log of a device.
#[derive(Debug)]
struct Reporter {
    health: HealthHandle,
    clock: Clock,
    outage: Outage,
    kept: Counter,
    lost: Counter,
    failing: Gauge,
    is_failing: bool,
}

impl AuditWriter {
    pub(super) fn new(options: &AuditOptions, health: HealthHandle, metrics: &Metrics, clock: Clock) -> Self {
        let metrics = metrics.get::<AuditMetrics>();
        // Each look-up ends before the next: it holds a lock.
        let counter = |outcome| {
            let labels = AuditOutcomeLabels { audit: options.name.clone(), outcome };
            metrics.records.get_or_create(&labels).clone()
        };
        let report = Reporter {
            health,
            clock,
            outage: Outage::default(),
            kept: counter("kept"),
            lost: counter("lost"),
            failing: metrics.failing.get_or_create(&AuditLabels { audit: options.name.clone() }).clone(),
            is_failing: false,
        };
        Self {
            name: options.name.clone(),
            on_failure: options.on_failure,
            device: Device::new(&options.target),
            lines: LineWriter::new(AuditKey::new(&options.key)),
            chain: random_name(),
            position: ChainPosition::default(),
            before_partial: None,
            start: Start::Unread,
            lost: 0,
            unsynced: None,
            checkpoints: CheckpointExport::new(options),
            report,
        }
    }

    /// Writes until the queue is stopped.
    pub(super) fn run(mut self, queue: &RecordQueue) {
        // The start record does not wait for the first request: it says when the process began to watch.
        self.write(Vec::new(), false);
        loop {
            let Work { records, lost, reopen, stop } = queue.take(self.next_deadline());
            self.count_lost(lost);
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
            self.tend(false);
        }
        self.tend(true);
    }

    /// Returns true if the device is tried without a request: one that waits for readiness may send none.
    fn retries(&self) -> bool {
        self.report.is_failing || !matches!(self.start, Start::Written)
    }

    /// Time to the next sync, checkpoint or retry.
    fn next_deadline(&self) -> Option<Duration> {
        let sync = self.unsynced.map(|since| SYNC_INTERVAL.saturating_sub(since.elapsed()));
        let retry = self.retries().then_some(RETRY_INTERVAL);
        [sync, retry, self.checkpoints.time_to_next()].into_iter().flatten().min()
    }

    /// Syncs and exports what is due; everything at the end.
    fn tend(&mut self, at_end: bool) {
        if self.unsynced.is_some_and(|since| at_end || since.elapsed() >= SYNC_INTERVAL) {
            self.unsynced = None;
            if let Err(error) = self.device.sync() {
                self.fail(&error);
            }
        }
        self.checkpoints.export_if_due(&self.chain, &self.position, at_end);
    }

    fn write(&mut self, records: Vec<QueuedRecord>, stops: bool) {
        let (records, abandoned): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.kept.as_ref().is_none_or(|kept| !kept.is_closed()));
        // Their requests were refused already.
        self.count_lost(abandoned.len() as u64);
        let prepared = self.resume().and_then(|()| self.device.prepare(ESTIMATED_LINE * (records.len() as u64 + 2)));
        if self.device.take_lost_partial()
            && let Some(before) = self.before_partial.take()
        {
            self.position = before;
        }
        match prepared {
            Err(error) => {
                self.fail(&error);
                self.refuse(records);
            }
            Ok(prepared) => {
                self.before_partial = None;
                self.write_batch(records, prepared, stops);
            }
        }
    }

    fn write_batch(&mut self, records: Vec<QueuedRecord>, prepared: Prepared, stops: bool) {
        let now = SystemTime::now();
        let (mut bytes, mut position) = (Vec::new(), self.position);
        let (mut ends, mut positions) = (Vec::new(), Vec::new());
        let leading = self.leading_records(prepared);
        let leads = leading.len();
        for record in &leading {
            self.lines.append_chain(&mut bytes, now, record, &mut position);
            (ends.push(bytes.len()), positions.push(position));
        }
        for queued in &records {
            self.lines.append(&mut bytes, queued.at, &queued.record, &mut position);
            (ends.push(bytes.len()), positions.push(position));
        }
        if stops {
            self.lines.append_chain(&mut bytes, now, &ChainRecord::Stop {}, &mut position);
            (ends.push(bytes.len()), positions.push(position));
        }
        if ends.is_empty() {
            self.succeed();
            return;
        }
        let written = self.device.write(&bytes, &ends);
        let chained = written.lines + usize::from(written.is_partial);
        if written.is_partial {
            let before = written.lines.checked_sub(1).map_or(self.position, |last| positions[last]);
            self.before_partial = Some(before);
        }
        if let Some(last) = chained.checked_sub(1) {
            self.position = positions[last];
            self.start = Start::Written;
            self.unsynced.get_or_insert_with(Instant::now);
            self.checkpoints.count(chained as u64);
        }
        if leading.iter().take(written.lines).any(|record| matches!(record, ChainRecord::Lost { .. })) {
            self.lost = 0;
        }
        let mut records = records;
        let unkept = records.split_off(written.lines.saturating_sub(leads).min(records.len()));
        self.report.kept.inc_by(records.len() as u64);
        for kept in records.into_iter().filter_map(|record| record.kept) {
            // The caller may have gone.
            let _ = kept.send(true);
        }
        match written.error {
            Some(error) => self.fail(&error),
            None => self.succeed(),
        }
        self.refuse(unkept);
    }

    /// Records about the chain that come before those of requests.
    fn leading_records(&self, prepared: Prepared) -> Vec<ChainRecord> {
        let header = ChainHeader { chain: Arc::clone(&self.chain).into(), prev: self.position.mac.hex() };
        let mut leading = Vec::new();
        match self.start {
            Start::Unwritten { previous, torn_bytes } => leading.push(ChainRecord::Start {
                header,
                version: env!("CARGO_PKG_VERSION"),
                pid: std::process::id(),
                previous,
                torn_bytes,
            }),
            Start::Unread | Start::Written if prepared == Prepared::New => {
                leading.push(ChainRecord::Continue { header })
            }
            Start::Unread | Start::Written => {}
        }
        if self.lost > 0 {
            leading.push(ChainRecord::Lost { records: self.lost });
        }
        leading
    }

    /// Reads once what the process before left.
    fn resume(&mut self) -> Result<(), DeviceError> {
        if !matches!(self.start, Start::Unread) {
            return Ok(());
        }
        let Device::File(file) = &mut self.device else {
            self.start = Start::Unwritten { previous: PreviousEnd::None, torn_bytes: 0 };
            return Ok(());
        };
        let Resumed { chain, previous, torn_bytes } = file.resume(self.lines.key())?;
        if let Some((chain, position)) = chain {
            (self.chain, self.position) = (chain.into(), position);
        }
        if previous == PreviousEnd::Unverified {
            tracing::warn!(
                event = "audit.chain.unverified",
                audit = self.name,
                "the end of the audit file does not fit the key; it was moved away, and a new chain begins"
            );
        }
        self.start = Start::Unwritten { previous, torn_bytes };
        Ok(())
    }

    fn refuse(&mut self, records: Vec<QueuedRecord>) {
        self.count_lost(records.len() as u64);
        for kept in records.into_iter().filter_map(|record| record.kept) {
            let _ = kept.send(false);
        }
    }

    fn count_lost(&mut self, records: u64) {
        self.lost += records;
        self.report.lost.inc_by(records);
    }

    fn fail(&mut self, error: &DeviceError) {
        self.report.health.failed(error.code, error.text.as_str());
        if !self.report.outage.begin(self.report.clock.now()) {
            return;
        }
        self.report.failing.set(1);
        self.report.is_failing = true;
        let (audit, error) = (&self.name, &error.text);
        match self.on_failure {
            OnFailure::Closed => {
                tracing::error!(event = "audit.failed", audit, error, "records cannot be kept; requests are refused");
            }
            OnFailure::Open => {
                tracing::error!(
                    event = "audit.failed",
                    audit,
                    error,
                    "records cannot be kept; requests are served without"
                );
            }
        }
    }

    fn succeed(&mut self) {
        self.report.health.ready();
        if let Some(lasted_seconds) = self.report.outage.end(self.report.clock.now()) {
            self.report.failing.set(0);
            self.report.is_failing = false;
            tracing::info!(event = "audit.recovered", audit = self.name, lasted_seconds, "records are kept again");
        }
    }
}

/// A random name of a chain.
fn random_name() -> Arc<str> {
    let mut bytes = [0; 16];
    // Without randomness names may repeat; then checkpoints of two chains cannot be told apart, and nothing else.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    crate::hex::encode_hex(&bytes).into()
}

/// Length of a usual line, by which a file is rotated before it is too large.
const ESTIMATED_LINE: u64 = 512;

/// Time until written records reach the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two attempts while the device fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
