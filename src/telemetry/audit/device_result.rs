//! Results of writing to an audit device: what was kept, what failed, and what the process before left.

use std::io;
use std::path::Path;

use keyward_machine::secure_dir::DirError;

use super::line::ChainPosition;
use super::record::PreviousEnd;
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;

/// An error of a device, in words for operators.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct DeviceError {
    pub(super) text: String,
    pub(super) code: ErrorCode,
}

impl DeviceError {
    pub(super) fn new(step: &str, path: &Path, error: &io::Error) -> Self {
        let text = format!("cannot {step} {}: {error}", path.display());
        Self { text, code: ErrorCode::from_write_error(error) }
    }
}

impl From<DirError> for DeviceError {
    fn from(error: DirError) -> Self {
        Self { code: (&error).into(), text: format_chain(&error) }
    }
}

/// Place at which the next lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WritePosition {
    /// In the same file, or on the same connection.
    Unchanged,
    /// In a new file or on a new connection, which begins with a header.
    Reopened,
}

/// State that the process before this one left.
#[derive(Debug)]
pub(super) struct ResumedChain {
    /// Chain to continue, and its position.
    pub(super) chain: Option<(String, ChainPosition)>,
    pub(super) previous: PreviousEnd,
    pub(super) torn_bytes: u64,
}

/// Lines of a write that were kept.
#[derive(Debug)]
pub(super) struct WriteOutcome {
    /// Whole lines that were kept.
    pub(super) lines: usize,
    /// One more line was started; its rest follows before anything else.
    pub(super) is_partial: bool,
    pub(super) error: Option<DeviceError>,
}

/// Number of lines that lie within the first `written` bytes.
pub(super) fn whole_lines(ends: &[usize], written: usize) -> usize {
    ends.partition_point(|end| *end <= written)
}
