//! Exports checkpoints of one device: to a file, and to the log, which other processes keep.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use keyward_machine::atomic_file::{self, Attributes};
use tokio::time::Instant;

use super::checkpoint::Checkpoint;
use super::line::ChainPosition;
use super::options::{AuditOptions, AuditTarget};
use crate::error_chain::format_chain;
use crate::time_format::format_rfc3339;

/// Records since the last checkpoint, and where the next one goes.
#[derive(Debug)]
pub(super) struct CheckpointExport {
    name: String,
    file: Option<PathBuf>,
    attributes: Attributes,
    every: u64,
    interval: Duration,
    records: u64,
    /// Time of the first record since the last checkpoint.
    since: Option<Instant>,
}

impl CheckpointExport {
    pub(super) fn new(options: &AuditOptions) -> Self {
        let attributes = match &options.target {
            AuditTarget::File(file) => file.attributes,
            AuditTarget::Socket(_) | AuditTarget::Journald(_) => Attributes { mode: 0o600, owner: None, group: None },
        };
        Self {
            name: options.name.clone(),
            file: options.checkpoint_file.clone(),
            attributes,
            every: options.checkpoint_records,
            interval: options.checkpoint_interval,
            records: 0,
            since: None,
        }
    }

    /// Counts records that were written.
    pub(super) fn count(&mut self, records: u64) {
        self.records += records;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Time to the next checkpoint; `None` while nothing was written since the last.
    pub(super) fn time_to_next(&self) -> Option<Duration> {
        self.since.map(|since| self.interval.saturating_sub(since.elapsed()))
    }

    /// Returns true if enough records or time have passed since the last checkpoint, or if anything was written since then at the
    /// end.
    pub(super) fn is_due(&self, at_end: bool) -> bool {
        self.time_to_next().is_some_and(|remaining| at_end || self.records >= self.every || remaining.is_zero())
    }

    /// Exports a checkpoint of the records that were counted.
    pub(super) fn export(&mut self, chain: &str, position: &ChainPosition) {
        (self.records, self.since) = (0, None);
        let Some(checkpoint) = Checkpoint::new(chain, position, format_rfc3339(SystemTime::now())) else { return };
        let Checkpoint { chain, seq, mac, .. } = &checkpoint;
        tracing::info!(event = "audit.checkpoint", audit = self.name, chain, seq, mac, "position of the audit's chain");
        let Some(file) = &self.file else { return };
        let mut text = serde_json::to_vec(&checkpoint).unwrap_or_default();
        text.push(b'\n');
        if let Err(error) = atomic_file::replace(file, &text, &self.attributes) {
            let path = file.display().to_string();
            let error = format_chain(&error);
            tracing::warn!(
                event = "audit.checkpoint.failed",
                audit = self.name,
                path,
                error,
                "cannot write the checkpoint to its file"
            );
        }
    }
}
