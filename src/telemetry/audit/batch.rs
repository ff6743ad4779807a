//! Lines that are written at once, with the chain's position after each.

use std::time::SystemTime;

use super::line::{ChainPosition, LineWriter};
use super::queue::QueuedRecord;
use super::record::ChainRecord;

/// Lines of a batch: first those about the chain, then those of requests, then a stop record.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// End of each line.
    pub(super) ends: Vec<usize>,
    start: ChainPosition,
    /// Position after each line.
    positions: Vec<ChainPosition>,
    /// Lines before those of requests.
    pub(super) leads: usize,
}

impl Batch {
    /// Formats and signs the lines from a position on.
    pub(super) fn new(
        lines: &mut LineWriter,
        start: ChainPosition,
        leading: &[ChainRecord],
        records: &[QueuedRecord],
        stops: bool,
    ) -> Self {
        let count = leading.len() + records.len() + usize::from(stops);
        let mut batch = Self {
            bytes: Vec::with_capacity(ESTIMATED_LINE * count),
            ends: Vec::with_capacity(count),
            start,
            positions: Vec::with_capacity(count),
            leads: leading.len(),
        };
        let now = SystemTime::now();
        let mut position = start;
        for record in leading {
            lines.append_chain(&mut batch.bytes, now, record, &mut position);
            batch.end_line(position);
        }
        for queued in records {
            lines.append(&mut batch.bytes, queued.at, &queued.record, &mut position);
            batch.end_line(position);
        }
        if stops {
            lines.append_chain(&mut batch.bytes, now, &ChainRecord::Stop {}, &mut position);
            batch.end_line(position);
        }
        batch
    }

    fn end_line(&mut self, position: ChainPosition) {
        self.ends.push(self.bytes.len());
        self.positions.push(position);
    }

    /// Returns the position after this many lines.
    pub(super) fn position_after(&self, lines: usize) -> ChainPosition {
        lines.checked_sub(1).and_then(|last| self.positions.get(last)).copied().unwrap_or(self.start)
    }
}

/// Length of a usual line, in bytes.
pub(super) const ESTIMATED_LINE: usize = 512;
