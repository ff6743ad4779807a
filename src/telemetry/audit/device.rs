//! Destination of one audit device: a file, a stream socket or journald.

use super::device_result::{DeviceError, WriteOutcome, WritePosition};
use super::file::AuditFile;
use super::journald::JournaldSocket;
use super::options::AuditTarget;
use super::stream::StreamSocket;

/// A device of one kind.
#[derive(Debug)]
pub(super) enum Device {
    File(Box<AuditFile>),
    Stream(StreamSocket),
    Journald(JournaldSocket),
}

impl Device {
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
