//! Result of a verification: findings with their places, and notes.

use std::fmt;
use std::sync::Arc;

use crate::audit::checkpoint::Checkpoint;
use crate::audit::line::LineError;

/// Place of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePosition {
    /// Name of the file.
    pub file: Arc<str>,
    /// Number of the line, from 1.
    pub line: u64,
}

impl fmt::Display for LinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A change that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFinding {
    /// The line at which it shows.
    pub position: LinePosition,
    /// The change.
    pub(crate) kind: AuditFindingKind,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditFindingKind {
    /// A line is not a record.
    Unreadable(LineError),
    /// The MAC of a record does not match: it was changed or inserted, or the record before it was.
    Altered {
        /// Number of the record.
        seq: u64,
    },
    /// Records are missing before this line.
    Missing {
        /// Number of the first.
        from: u64,
        /// Number of the last.
        to: u64,
    },
    /// A record stands after one that was written later, or twice.
    OutOfOrder {
        /// Number of the record.
        seq: u64,
    },
    /// The first line is not one that begins a file.
    MissingHeader {
        /// Number of the record.
        seq: u64,
    },
}

impl fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.position)?;
        match self.kind {
            AuditFindingKind::Unreadable(error) => write!(f, "{error}"),
            AuditFindingKind::Altered { seq } => {
                write!(f, "record {seq} was changed or inserted: its MAC does not match")
            }
            AuditFindingKind::Missing { from, to } if from == to => {
                write!(f, "record {from} is missing before this line")
            }
            AuditFindingKind::Missing { from, to } => write!(f, "records {from} to {to} are missing before this line"),
            AuditFindingKind::OutOfOrder { seq } => {
                write!(f, "record {seq} is out of place: later ones stand before it")
            }
            AuditFindingKind::MissingHeader { seq } => {
                write!(f, "the file starts with record {seq} instead of a header record: lines before it are missing")
            }
        }
    }
}

/// A note about the chain that is not a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyNote {
    /// A process was killed before this line.
    Killed {
        /// The first record of the next process.
        position: LinePosition,
    },
    /// The writer could not verify the record before this line, and began a new chain.
    Unverified {
        /// The first record of the new chain.
        position: LinePosition,
    },
    /// A connection broke within a record, which was written again or counted as lost.
    IncompleteLine {
        /// The incomplete line.
        position: LinePosition,
    },
    /// A new chain begins.
    NewChain {
        /// Its first record.
        position: LinePosition,
        /// Name of the chain before it.
        chain: Arc<str>,
        /// Number of that chain's last record.
        last: u64,
        /// That chain ends with an orderly stop.
        stopped: bool,
    },
    /// The lines do not begin with the first record of their chain.
    StartsAfterFirst {
        /// The first record.
        position: LinePosition,
        /// Number of records before it.
        records: u64,
    },
    /// A checkpoint is older than the lines.
    OlderCheckpoint {
        /// Number of its record.
        seq: u64,
    },
}

impl fmt::Display for VerifyNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { position } => {
                write!(f, "{position}: the process before this line ended without a stop record")
            }
            Self::Unverified { position } => {
                write!(f, "{position}: the writer could not verify the lines before it, and began a new chain")
            }
            Self::IncompleteLine { position } => write!(f, "{position}: a connection broke within this line"),
            Self::NewChain { position, chain, last, stopped } => {
                let end = if *stopped { "an orderly stop" } else { "no stop record" };
                write!(f, "{position}: a new chain begins; chain {chain} ends at record {last} with {end}")
            }
            Self::StartsAfterFirst { position, records } => {
                write!(f, "{position}: {records} earlier records are not in these files (rotated away, or removed)")
            }
            Self::OlderCheckpoint { seq } => write!(f, "the checkpoint of record {seq} is older than these files"),
        }
    }
}

/// Result of a verification.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Lines that were read.
    pub lines: u64,
    /// Records whose MAC was right.
    pub verified: u64,
    /// Records that the writer itself counted as lost.
    pub lost: u64,
    /// Checkpoints whose record was found unchanged.
    pub checkpoints: u64,
    /// Changes, in the order of the lines.
    pub findings: Vec<AuditFinding>,
    /// Checkpoints whose record is missing or another one, with the last record of their chain.
    pub missing_checkpoints: Vec<(Checkpoint, Option<u64>)>,
    /// Remarks, in the order of the lines.
    pub notes: Vec<VerifyNote>,
    /// Name of the chain and number of its last record.
    pub last: Option<(Arc<str>, u64)>,
    /// The last record is that of an orderly stop.
    pub stopped: bool,
}

impl VerifyReport {
    /// Returns true if nothing was found.
    pub const fn is_intact(&self) -> bool {
        self.findings.is_empty() && self.missing_checkpoints.is_empty()
    }

    /// Describes a checkpoint that was not found.
    pub fn describe_missing((checkpoint, last): &(Checkpoint, Option<u64>)) -> String {
        let Checkpoint { chain, seq, time, .. } = checkpoint;
        match last {
            Some(last) if last < seq => {
                format!(
                    "records {} to {seq} are missing at the end: a checkpoint of {time} has seen record {seq}",
                    last + 1
                )
            }
            _ => format!("record {seq} of chain {chain} is missing or was changed: a checkpoint of {time} has seen it"),
        }
    }
}
