//! journald's native protocol: one datagram for each record.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use super::{DeviceError, WriteOutcome, WritePosition};

/// Socket of journald.
#[derive(Debug)]
pub(in crate::audit) struct JournaldSocket {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl JournaldSocket {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, socket: None }
    }

    pub(super) fn prepare(&mut self) -> Result<WritePosition, DeviceError> {
        if self.socket.is_some() {
            return Ok(WritePosition::Unchanged);
        }
        let connect = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect(&self.path)?;
            socket.set_write_timeout(Some(TIMEOUT))?;
            Ok(socket)
        };
        let socket = connect().map_err(|error| DeviceError::new("connect to", &self.path, &error))?;
        self.socket = Some(socket);
        Ok(WritePosition::Reopened)
    }

    pub(super) fn write(&mut self, bytes: &[u8], ends: &[usize]) -> WriteOutcome {
        let mut start = 0;
        for (lines, end) in ends.iter().enumerate() {
            if let Err(error) = self.send(&bytes[start..*end]) {
                let is_full = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                if !is_full {
                    self.socket = None;
                }
                let error = Some(DeviceError::new("write to", &self.path, &error));
                return WriteOutcome { lines, is_partial: false, error };
            }
            start = *end;
        }
        WriteOutcome { lines: ends.len(), is_partial: false, error: None }
    }

    /// Sends one line, which ends the datagram.
    fn send(&self, line: &[u8]) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut datagram = Vec::with_capacity(HEAD.len() + line.len());
        datagram.extend_from_slice(HEAD);
        datagram.extend_from_slice(line);
        socket.send(&datagram).map(drop)
    }
}

/// The fields before the message, which is one line and the last field.
const HEAD: &[u8] = b"PRIORITY=6\nSYSLOG_IDENTIFIER=keyward-audit\nMESSAGE=";

/// Time for journald to read; well below the time that a request waits for its record.
const TIMEOUT: Duration = Duration::from_secs(1);
