//! Sockets that the service manager opened before the start (`sd_listen_fds(3)`).

use std::io;
use std::os::fd::OwnedFd;

/// Passed sockets by name. They stay open for the life of the process, so that a reload finds them again.
#[derive(Debug, Default)]
pub struct ActivatedSockets(Vec<(String, OwnedFd)>);

impl ActivatedSockets {
    /// Takes ownership of the sockets that these values of `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES` announce;
    /// none if a value is missing or meant for another process. Call it once, before other descriptors are opened.
    pub fn take(pid: Option<&str>, count: Option<&str>, names: Option<&str>) -> io::Result<Self> {
        match (pid, count) {
            (Some(pid), Some(count)) => {
                keyward_machine::os::take_passed_sockets(pid, count, names.unwrap_or_default()).map(Self)
            }
            _ => Ok(Self::default()),
        }
    }

    /// Returns the names in the order of the service manager.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Duplicates the descriptor of the socket of this name.
    pub(super) fn socket(&self, name: &str) -> io::Result<OwnedFd> {
        let mut sockets = self.0.iter().filter(|(socket_name, _)| socket_name == name);
        match (sockets.next(), sockets.next()) {
            (Some((_, socket)), None) => socket.try_clone(),
            (Some(_), Some(_)) => {
                Err(io::Error::other(format!("the service manager passed several sockets named {name}")))
            }
            (None, _) if self.0.is_empty() => {
                Err(io::Error::other(format!("the service manager passed no socket named {name} (passed: none)")))
            }
            (None, _) => {
                let names: Vec<&str> = self.names().collect();
                let text = format!("the service manager passed no socket named {name} (passed: {})", names.join(", "));
                Err(io::Error::other(text))
            }
        }
    }
}
