//! Destination of one audit device: a file, a stream socket or journald; and the results of writing to it.

mod file;
mod journald;
mod stream;

use std::io;
use std::path::Path;

use keyward_machine::secure_dir::DirError;

use self::file::AuditFile;
use self::journald::JournaldSocket;
use self::stream::StreamSocket;
use super::line::ChainPosition;
use super::options::AuditTarget;
use super::record::PreviousEnd;
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;

/// A device of one kind.
#[derive(Debug)]
pub(super) enum Device {
    File(Box<AuditFile>),
    Stream(StreamSocket),
    Journald(JournaldSocket),
}

impl Device {
    /// Checks that a device can be used, without changing anything.
    pub(super) fn probe(target: &AuditTarget) -> Result<(), DeviceError> {
        match target {
            AuditTarget::File(options) => file::probe(options),
            // A collector may start later.
            AuditTarget::Socket(_) | AuditTarget::Journald(_) => Ok(()),
        }
    }

    pub(super) fn new(target: &AuditTarget) -> Self {
        match target {
            AuditTarget::File(options) => Self::File(Box::new(AuditFile::new(options.clone()))),
            AuditTarget::Socket(path) => Self::Stream(StreamSocket::new(path.clone())),
            AuditTarget::Journald(path) => Self::Journald(JournaldSocket::new(path.clone())),
        }
    }

    /// Makes the device ready for about `bytes` more.
    pub(super) fn prepare(&mut self, bytes: u64) -> Result<WritePosition, DeviceError> {
        match self {
            Self::File(file) => file.prepare(bytes),
            Self::Stream(stream) => stream.prepare(),
            Self::Journald(journald) => journald.prepare(),
        }
    }

    /// Writes lines; `ends` has the end of each.
    pub(super) fn write(&mut self, bytes: &[u8], ends: &[usize]) -> WriteOutcome {
        match self {
            Self::File(file) => file.write(bytes, ends),
            Self::Stream(stream) => stream.write(bytes, ends),
            Self::Journald(journald) => journald.write(bytes, ends),
        }
    }

    /// Returns true once after a partial line has been lost with its connection.
    pub(super) fn take_lost_partial(&mut self) -> bool {
        match self {
            Self::Stream(stream) => stream.take_lost_partial(),
            Self::File(_) | Self::Journald(_) => false,
        }
    }

    /// Syncs written lines to the disk.
    pub(super) fn sync(&mut self) -> Result<(), DeviceError> {
        match self {
            Self::File(file) => file.sync(),
            Self::Stream(_) | Self::Journald(_) => Ok(()),
        }
    }

    /// Looks at the path again before the next lines.
    pub(super) fn reopen(&mut self) {
        if let Self::File(file) = self {
            file.reopen();
        }
    }
}

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
