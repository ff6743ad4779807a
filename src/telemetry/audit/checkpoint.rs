//! Checkpoints: the position of a chain, against which a cut tail is found. They are exported to a file, and to the log, which other
//! processes keep.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use keyward_machine::atomic_file::{self, Attributes};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::key::Mac;
use super::line::ChainPosition;
use super::options::{AuditOptions, AuditTarget};
use crate::error_chain::format_chain;
use crate::time_format::format_rfc3339;

/// Number and MAC of the last record of a chain. Holds no secret, and cannot be made without the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Random name of the chain.
    pub(crate) chain: String,
    /// Number of the record.
    pub(crate) seq: u64,
    /// MAC of the record.
    pub(crate) mac: String,
    /// Time at which the checkpoint was made.
    pub(crate) time: String,
}

/// A line is not a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("not a checkpoint; expected {{\"chain\":...,\"seq\":...,\"mac\":...,\"time\":...}}")]
pub struct CheckpointError(#[source] Option<serde_json::Error>);

impl Checkpoint {
    /// Makes the checkpoint of a chain's position; `None` before its first record.
    pub(super) fn new(chain: &str, position: &ChainPosition, time: String) -> Option<Self> {
        let seq = position.next.checked_sub(1)?;
        Some(Self { chain: chain.to_owned(), seq, mac: position.mac.hex(), time })
    }

    /// Parses checkpoints, one in each line.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, CheckpointError> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let all: Vec<Self> =
            lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(|error| CheckpointError(Some(error)))?;
        let are_valid = all.iter().all(|checkpoint| Mac::parse(checkpoint.mac.as_bytes()).is_some());
        if all.is_empty() || !are_valid { Err(CheckpointError(None)) } else { Ok(all) }
    }
}

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
