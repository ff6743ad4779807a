//! A collector's stream socket. A reader that stops reading costs one incomplete line, and no wait for long.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::time::Instant;

use super::{DeviceError, WriteOutcome, WritePosition, whole_lines};

/// Connection to a collector.
#[derive(Debug)]
pub(in crate::audit) struct StreamSocket {
    path: PathBuf,
    connection: Option<UnixStream>,
    /// Rest of a line whose beginning was sent.
    rest: Vec<u8>,
    lost_partial: bool,
    /// The last connection ended within a line.
    is_torn: bool,
    /// The collector reads nothing: the next attempt waits only briefly.
    is_stalled: bool,
    /// Nothing is tried before.
    retry_at: Option<Instant>,
    last_error: Option<DeviceError>,
}

impl StreamSocket {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self {
            path,
            connection: None,
            rest: Vec::new(),
            lost_partial: false,
            is_torn: false,
            is_stalled: false,
            retry_at: None,
            last_error: None,
        }
    }

    pub(super) fn prepare(&mut self) -> Result<WritePosition, DeviceError> {
        if self.connection.is_some() {
            let rest = std::mem::take(&mut self.rest);
            let (sent, error) = self.send(&rest);
            match error {
                None => return Ok(WritePosition::Unchanged),
                Some(error) if self.connection.is_some() => {
                    self.rest = rest[sent..].to_vec();
                    return Err(error);
                }
                // Closed meanwhile: connected anew at once. The rest belongs to no other connection.
                Some(_) if !rest.is_empty() => (self.lost_partial, self.is_torn) = (true, true),
                Some(_) => {}
            }
        }
        if let (Some(retry_at), Some(error)) = (self.retry_at, &self.last_error)
            && Instant::now() < retry_at
        {
            return Err(error.clone());
        }
        match connect(&self.path) {
            Ok(connection) => {
                (self.connection, self.retry_at) = (Some(connection), None);
                if self.is_torn {
                    // Ends the incomplete line of the last connection for collectors that append to one file.
                    let (_, error) = self.send(b"\n");
                    error.map_or(Ok(()), Err)?;
                    self.is_torn = false;
                }
                Ok(WritePosition::Reopened)
            }
            Err(error) => {
                let error = DeviceError::new("connect to", &self.path, &error);
                (self.retry_at, self.last_error) = (Some(Instant::now() + RETRY), Some(error.clone()));
                Err(error)
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8], ends: &[usize]) -> WriteOutcome {
        let (sent, error) = self.send(bytes);
        let lines = whole_lines(ends, sent);
        let end_of_kept = lines.checked_sub(1).map_or(0, |last| ends[last]);
        let is_inside = error.is_some() && sent > end_of_kept;
        let is_partial = is_inside && self.connection.is_some();
        if is_partial {
            self.rest = bytes[sent..ends[lines]].to_vec();
        } else if is_inside {
            self.is_torn = true;
        }
        WriteOutcome { lines, is_partial, error }
    }

    pub(super) fn take_lost_partial(&mut self) -> bool {
        std::mem::take(&mut self.lost_partial)
    }

    /// Sends bytes; returns how many were taken. A collector that reads nothing keeps its connection, another error ends it.
    fn send(&mut self, bytes: &[u8]) -> (usize, Option<DeviceError>) {
        let Some(connection) = &mut self.connection else { return (0, None) };
        let timeout = if self.is_stalled { STALLED_TIMEOUT } else { TIMEOUT };
        let mut sent = 0;
        let mut outcome = connection.set_write_timeout(Some(timeout));
        while outcome.is_ok() && sent < bytes.len() {
            match connection.write(&bytes[sent..]) {
                Ok(0) => outcome = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => outcome = Err(error),
            }
        }
        let Err(error) = outcome else {
            self.is_stalled = false;
            return (sent, None);
        };
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            self.is_stalled = true;
            let text = format!("the collector at {} reads nothing", self.path.display());
            return (sent, Some(DeviceError { text, code: crate::error_code::ErrorCode::AuditUnavailable }));
        }
        self.connection = None;
        self.is_stalled = false;
        (sent, Some(DeviceError::new("write to", &self.path, &error)))
    }
}

/// Connects without waiting: a blocking `connect` waits while the collector's backlog is full.
fn connect(path: &std::path::Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Time for a collector to read; well below the time that a request waits for its record.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Time for a collector that has read nothing for [`TIMEOUT`].
const STALLED_TIMEOUT: Duration = Duration::from_millis(20);

/// Time from a failed connection to the next.
const RETRY: Duration = Duration::from_millis(500);
