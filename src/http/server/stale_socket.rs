//! Checks that the path of a unix socket is free, or holds a dead socket or one of this process.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use keyward_machine::secure_dir::Dir;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Checks that a socket may be bound at a path.
pub(super) fn check_replaceable(folder: &Dir, name: &OsStr, path: &Path) -> io::Result<()> {
    let Some(stat) = folder.stat(Path::new(name))? else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path holds a file that is not a socket; remove it or choose another path",
        ));
    }
    // Non-blocking: a full queue would block the whole process, forever if the listener is this process.
    let probe = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    match rustix::net::connect(&probe, &rustix::net::SocketAddrUnix::new(path)?) {
        // This process's own socket: a reload binds the path again before it drops the old socket.
        Ok(()) if is_listening(&probe) => Ok(()),
        Err(Errno::AGAIN) if own_sockets().contains(&identity(&stat)) => Ok(()),
        // A socket with a full queue is alive.
        Ok(()) | Err(Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on this socket"))
        }
        Err(Errno::CONNREFUSED) => Ok(()),
        Err(errno) => {
            let error = io::Error::from(errno);
            let text = format!("cannot tell whether another process listens on this socket: {error}");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

fn is_listening(probe: impl AsFd) -> bool {
    rustix::net::sockopt::socket_peercred(probe).is_ok_and(|peer| peer.pid == rustix::process::getpid())
}

/// Socket files bound by this process: with a full queue the peer credentials cannot be read.
static OWN_SOCKETS: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

pub(super) fn own_sockets() -> MutexGuard<'static, BTreeSet<(u64, u64)>> {
    OWN_SOCKETS.lock()
}

/// Device and inode of a file.
pub(super) const fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
