//! Opens the executables of other processes: in this process, or by the spawner for a process in a sandbox, to which Landlock
//! denies them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{CapabilitySet, capabilities};
use tokio::sync::watch;

use super::executable_messages::{ExecutableAccess, OpenReply, OpenRequest};
use crate::clock::{Clock, ClockReading};

/// Opens executables. The default one opens them in this process; clones share a spawner.
#[derive(Debug, Clone, Default)]
pub struct ExecutableOpener(Option<Arc<RemoteOpener>>);

/// The spawner, as it opens executables.
#[derive(Debug)]
struct RemoteOpener {
    requests: Mutex<Requests>,
    opens_all: bool,
    /// True while the spawner does not answer.
    is_silent: watch::Sender<bool>,
}

/// Socket to the spawner. A request is a message, and so is a reply.
#[derive(Debug)]
struct Requests {
    socket: OwnedFd,
    /// Number of the last request: the reply to one that timed out is told from the next one's.
    last: u64,
    /// When a request timed out last, if none was answered since.
    timed_out: Option<ClockReading>,
}

/// Time for the spawner to open a file. Requests of all callers wait meanwhile.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which a spawner that did not answer is not asked again.
const PAUSE: Duration = Duration::from_secs(10);

impl ExecutableOpener {
    /// Creates one, and the socket of a spawner that this process is about to start: it has the capabilities that this process
    /// has now.
    pub(super) fn through_spawner() -> io::Result<(Self, OwnedFd)> {
        let (socket, spawner_socket) =
            // Keeps the bounds of messages: a reply and its descriptor arrive together.
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        set_socket_timeout(&socket, Timeout::Send, Some(TIMEOUT))?;
        let requests = Mutex::new(Requests { socket, last: 0, timed_out: None });
        let remote = RemoteOpener { requests, opens_all: has_capability(), is_silent: watch::Sender::new(false) };
        Ok((Self(Some(Arc::new(remote))), spawner_socket))
    }

    /// Returns true if those of other users' processes are opened too: `CAP_SYS_PTRACE`.
    pub fn opens_all(&self) -> bool {
        self.0.as_ref().map_or_else(has_capability, |remote| remote.opens_all)
    }

    /// Opens the file that a process runs.
    ///
    /// # Errors
    /// There is no such process, this process or its spawner may not know its executable, or the spawner has not answered
    /// within a second, now or in the last ten.
    pub fn open(&self, pid: u32, access: ExecutableAccess) -> io::Result<File> {
        match &self.0 {
            None => open_here(pid, access).map(File::from),
            Some(remote) => {
                let mut requests = remote.requests.lock();
                let opened = requests.open(pid, access);
                let is_silent = requests.timed_out.is_some();
                remote.is_silent.send_if_modified(|was| std::mem::replace(was, is_silent) != is_silent);
                opened.map(File::from)
            }
        }
    }

    /// Watches if the spawner does not answer; `None` where this process opens executables itself.
    pub fn silence(&self) -> Option<watch::Receiver<bool>> {
        self.0.as_ref().map(|remote| remote.is_silent.subscribe())
    }
}

fn has_capability() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

fn open_here(pid: u32, access: ExecutableAccess) -> io::Result<OwnedFd> {
    let flags = match access {
        // Needs no right to read the file.
        ExecutableAccess::Identity => OFlags::PATH,
        ExecutableAccess::Content => OFlags::RDONLY,
    };
    Ok(rustix::fs::open(format!("/proc/{pid}/exe"), flags | OFlags::CLOEXEC, Mode::empty())?)
}

impl Requests {
    fn open(&mut self, pid: u32, access: ExecutableAccess) -> io::Result<OwnedFd> {
        if self.timed_out.is_some_and(|since| Clock::System.now().since(since) < PAUSE) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.ask(pid, access) {
            Ok(opened) => {
                self.timed_out = None;
                opened
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.timed_out = Some(Clock::System.now());
                Err(io::ErrorKind::TimedOut.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Asks the spawner. Its own error is the inner one.
    fn ask(&mut self, pid: u32, access: ExecutableAccess) -> io::Result<io::Result<OwnedFd>> {
        self.last += 1;
        OpenRequest { number: self.last, pid, access }.send(&self.socket)?;
        loop {
            match OpenReply::receive(&self.socket)? {
                None => return Err(io::Error::other("the helper process keyward-spawner has ended; restart keyward")),
                Some(reply) if reply.number == self.last => return Ok(reply.opened),
                // A reply to a request that timed out.
                Some(_) => {}
            }
        }
    }
}

/// Opens executables for the process at the other end of a socket, until that closes it.
pub(super) fn serve_executables(socket: &OwnedFd) {
    while let Ok(Some(OpenRequest { number, pid, access })) = OpenRequest::receive(socket) {
        if (OpenReply { number, opened: open_here(pid, access) }).send(socket).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_spawner_opens_executables_to_compare_and_to_read_and_tells_why_it_cannot() {
        let (opener, socket) = ExecutableOpener::through_spawner().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| serve_executables(&socket));
            let mut begin = [0; 4];
            let pid = std::process::id();
            opener.open(pid, ExecutableAccess::Content).unwrap().read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"\x7fELF");
            let compared = opener.open(pid, ExecutableAccess::Identity).unwrap();
            let found = rustix::fs::fstat(&compared).unwrap();
            let expected = std::env::current_exe().unwrap();
            let expected = rustix::fs::stat(expected).unwrap();
            assert_eq!((found.st_dev, found.st_ino), (expected.st_dev, expected.st_ino));
            (&compared).read_exact(&mut begin).unwrap_err();
            let error = opener.open(u32::MAX, ExecutableAccess::Identity).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            // A reply to a request that nobody waits for any more.
            {
                let requests = opener.0.as_ref().unwrap().requests.lock();
                OpenRequest { number: 0, pid, access: ExecutableAccess::Identity }.send(&requests.socket).unwrap();
            }
            opener.open(pid, ExecutableAccess::Identity).unwrap();
            drop(opener);
        });
    }

    #[test]
    fn a_spawner_that_does_not_answer_is_asked_once_and_then_left_alone() {
        let (opener, socket) = ExecutableOpener::through_spawner().unwrap();
        for _ in 0..3 {
            let error = opener.open(std::process::id(), ExecutableAccess::Identity).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert!(*opener.silence().unwrap().borrow());
        let access = ExecutableAccess::Identity;
        let asked = OpenRequest { number: 1, pid: std::process::id(), access };
        assert_eq!(OpenRequest::receive(&socket).unwrap(), Some(asked));
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        assert_eq!(OpenRequest::receive(&socket).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_spawner_that_has_ended_is_an_error() {
        let (opener, socket) = ExecutableOpener::through_spawner().unwrap();
        drop(socket);
        opener.open(std::process::id(), ExecutableAccess::Identity).unwrap_err();
    }
}
