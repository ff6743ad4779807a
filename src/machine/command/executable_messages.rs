//! Messages between an agent and its spawner about executables: a request, and a reply with an open file.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Use of an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutableAccess {
    /// To tell which file it is. The file system that it is on is not asked, as it may be another user's.
    Identity = 0,
    /// To read it.
    Content = 1,
}

/// Request to open the executable of a process. On the wire: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenRequest {
    /// The reply has it too.
    pub(super) number: u64,
    pub(super) pid: u32,
    pub(super) access: ExecutableAccess,
}

/// Reply to a request. On the wire: its number, and an error of the system; 0 with a descriptor.
#[derive(Debug)]
pub(super) struct OpenReply {
    pub(super) number: u64,
    pub(super) opened: io::Result<OwnedFd>,
}

impl OpenRequest {
    /// Sends it.
    ///
    /// # Errors
    /// The peer is gone, or has not read earlier ones in time.
    pub(super) fn send(self, socket: &OwnedFd) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..].copy_from_slice(&(self.access as u32).to_le_bytes());
        send(socket, &bytes, None)
    }

    /// Receives one; `None` once the peer is gone.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; 16];
        let (length, _) = receive(socket, &mut bytes)?;
        let [n0, n1, n2, n3, n4, n5, n6, n7, p0, p1, p2, p3, access, ..] = bytes;
        let access = if access == 0 { ExecutableAccess::Identity } else { ExecutableAccess::Content };
        let number = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        Ok((length == bytes.len()).then_some(Self { number, pid: u32::from_le_bytes([p0, p1, p2, p3]), access }))
    }
}

impl OpenReply {
    /// Sends it.
    pub(super) fn send(self, socket: &OwnedFd) -> io::Result<()> {
        let error = self.opened.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(EIO));
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&error.to_le_bytes());
        send(socket, &bytes, self.opened.ok().as_ref())
    }

    /// Receives one; `None` once the peer is gone.
    ///
    /// # Errors
    /// There was none in the socket's time.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; 12];
        let (length, descriptor) = receive(socket, &mut bytes)?;
        let [number @ .., e0, e1, e2, e3] = bytes;
        let opened = match (i32::from_le_bytes([e0, e1, e2, e3]), descriptor) {
            (0, Some(descriptor)) => Ok(descriptor),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        };
        Ok((length == bytes.len()).then_some(Self { number: u64::from_le_bytes(number), opened }))
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
    // A call on a socket with a timeout is not restarted after a signal (signal(7)).
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a message: its length, which is 0 at the end, and a descriptor that it carries.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}
