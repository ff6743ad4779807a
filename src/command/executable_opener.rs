//! Opens the executables of other processes: in this process, or by the spawner for a process in a sandbox, to which Landlock
//! denies them.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::{CapabilitySet, capabilities};

/// Use of an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutableAccess {
    /// To tell which file it is. The file system that it is on is not asked, as it may be another user's.
    Identity = 0,
    /// To read it.
    Content = 1,
}

/// Opens executables. The default one opens them in this process; clones share a spawner.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExecutableOpener(Option<Arc<RemoteOpener>>);

/// The spawner, as it opens executables.
#[derive(Debug)]
struct RemoteOpener {
    requests: Mutex<Requests>,
    opens_all: bool,
}

/// Socket to the spawner. A request is a message, and so is a reply.
#[derive(Debug)]
struct Requests {
    socket: OwnedFd,
    /// Number of the last request: the reply to one that timed out is told from the next one's.
    last: u64,
}

/// Time for the spawner to open a file. Requests of callers wait meanwhile.
const TIMEOUT: Duration = Duration::from_secs(1);

impl ExecutableOpener {
    /// Creates one, and the socket of a spawner that this process is about to start: it has the capabilities that this process
    /// has now.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(super) fn through_spawner() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(TIMEOUT))?;
        set_socket_timeout(&ours, Timeout::Send, Some(TIMEOUT))?;
        let requests = Mutex::new(Requests { socket: ours, last: 0 });
        Ok((Self(Some(Arc::new(RemoteOpener { requests, opens_all: has_capability() }))), theirs))
    }

    /// Returns true if those of other users' processes are opened too: `CAP_SYS_PTRACE`.
    pub(crate) fn opens_all(&self) -> bool {
        self.0.as_ref().map_or_else(has_capability, |remote| remote.opens_all)
    }

    /// Opens the file that a process runs.
    ///
    /// # Errors
    /// There is no such process, this process or its spawner may not know its executable, or the spawner does not answer within
    /// a second.
    pub(crate) fn open(&self, pid: u32, access: ExecutableAccess) -> io::Result<File> {
        match &self.0 {
            None => open_here(pid, access).map(File::from),
            Some(remote) => {
                remote.requests.lock().unwrap_or_else(PoisonError::into_inner).open(pid, access).map(File::from)
            }
        }
    }
}

fn has_capability() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

fn open_here(pid: u32, access: ExecutableAccess) -> io::Result<OwnedFd> {
    let flags = match access {
        ExecutableAccess::Identity => OFlags::PATH,
        ExecutableAccess::Content => OFlags::RDONLY,
    };
    Ok(rustix::fs::open(format!("/proc/{pid}/exe"), flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Request on the wire: its number, the process and the access.
type RequestBytes = [u8; 16];

/// Reply on the wire: the number of its request, and an error of the system; 0 with a descriptor.
type ReplyBytes = [u8; 12];

impl Requests {
    fn open(&mut self, pid: u32, access: ExecutableAccess) -> io::Result<OwnedFd> {
        self.last += 1;
        let mut request: RequestBytes = [0; 16];
        request[..8].copy_from_slice(&self.last.to_le_bytes());
        request[8..12].copy_from_slice(&pid.to_le_bytes());
        request[12..].copy_from_slice(&(access as u32).to_le_bytes());
        send(&self.socket, &request, None)?;
        loop {
            let mut reply: ReplyBytes = [0; 12];
            let (length, descriptor) = receive(&self.socket, &mut reply)?;
            if length != reply.len() {
                return Err(io::Error::other("the spawner has ended; restart keyward"));
            }
            let [number @ .., e0, e1, e2, e3] = reply;
            if u64::from_le_bytes(number) != self.last {
                continue;
            }
            return match (i32::from_le_bytes([e0, e1, e2, e3]), descriptor) {
                (0, Some(descriptor)) => Ok(descriptor),
                (error, _) => Err(io::Error::from_raw_os_error(error)),
            };
        }
    }
}

/// Opens executables for the process at the other end of a socket, until that closes it.
pub(super) fn serve_executables(socket: &OwnedFd) {
    loop {
        let mut request: RequestBytes = [0; 16];
        match receive(socket, &mut request) {
            Ok((length, _)) if length == request.len() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(_) | Err(_) => return,
        }
        let [n0, n1, n2, n3, n4, n5, n6, n7, p0, p1, p2, p3, access, ..] = request;
        let pid = u32::from_le_bytes([p0, p1, p2, p3]);
        let access = if access == 0 { ExecutableAccess::Identity } else { ExecutableAccess::Content };
        let opened = open_here(pid, access);
        let error = opened.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(EIO));
        let [e0, e1, e2, e3] = error.to_le_bytes();
        let reply: ReplyBytes = [n0, n1, n2, n3, n4, n5, n6, n7, e0, e1, e2, e3];
        if send(socket, &reply, opened.ok().as_ref()).is_err() {
            return;
        }
    }
}

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

fn send(socket: &OwnedFd, bytes: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let borrowed = descriptor.map(AsFd::as_fd);
    if let Some(descriptor) = &borrowed {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message: its length, which is 0 at the end, and a descriptor that it carries.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
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
            let own = std::process::id();
            opener.open(own, ExecutableAccess::Content).unwrap().read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"\x7fELF");
            let compared = opener.open(own, ExecutableAccess::Identity).unwrap();
            let (found, wanted) = (rustix::fs::fstat(&compared).unwrap(), std::env::current_exe().unwrap());
            let wanted = rustix::fs::stat(wanted).unwrap();
            assert_eq!((found.st_dev, found.st_ino), (wanted.st_dev, wanted.st_ino));
            (&compared).read_exact(&mut begin).unwrap_err();
            let error = opener.open(u32::MAX, ExecutableAccess::Identity).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            // A reply to a request that nobody waits for any more.
            {
                let requests = opener.0.as_ref().unwrap().requests.lock().unwrap();
                send(&requests.socket, &[0; 16], None).unwrap();
            }
            opener.open(own, ExecutableAccess::Identity).unwrap();
            drop(opener);
        });
    }

    #[test]
    fn a_spawner_that_has_ended_is_an_error() {
        let (opener, socket) = ExecutableOpener::through_spawner().unwrap();
        drop(socket);
        opener.open(std::process::id(), ExecutableAccess::Identity).unwrap_err();
    }
}
