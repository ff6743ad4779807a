//! A unix socket's file: made without a moment of wrong rights, never taken from a live owner, removed by its maker.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::UnixSocket;

/// The file of a bound socket. Dropped, it removes the file, if that is still the one that it made.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// The group that the file belongs to.
    pub(super) group: u32,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        our_own().remove(&self.identity);
        let ours = rustix::fs::lstat(&self.path).is_ok_and(|stat| identity(&stat) == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(event = "listener.socket.left", path = %self.path.display(), %error, "a socket stays behind");
        }
    }
}

/// Binds and listens: under a name of its own first, then moved into place.
pub(super) fn bind(socket: &UnixSocket) -> io::Result<(UnixListener, SocketFile)> {
    refuse_what_is_not_ours_to_replace(&socket.path)?;
    let listener = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // The kernel takes a socket file's mode from the unbound socket's (`unix(7)` leaves it out, `unix_bind_bsd` has
    // it): the file is never wider than this, whatever the umask.
    rustix::fs::fchmod(&listener, Mode::from_raw_mode(0o600))?;
    let temporary = temporary_name(&socket.path)?;
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&temporary)?)?;
    let made = finish(socket, &temporary, &listener);
    if made.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&temporary);
    }
    Ok((UnixListener::from(listener), made?))
}

fn finish(socket: &UnixSocket, temporary: &Path, listener: &std::os::fd::OwnedFd) -> io::Result<SocketFile> {
    let file = rustix::fs::open(temporary, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if socket.owner.is_some() || socket.group.is_some() {
        let (owner, group) = (socket.owner.map(Uid::from_raw), socket.group.map(Gid::from_raw));
        rustix::fs::chownat(&file, "", owner, group, AtFlags::EMPTY_PATH)?;
    }
    rustix::fs::chmodat(CWD, temporary, Mode::from_raw_mode(socket.mode as RawMode), AtFlags::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    // Nobody could connect before this.
    rustix::net::listen(listener, BACKLOG)?;
    move_into_place(temporary, &socket.path)?;
    our_own().insert(identity(&stat));
    Ok(SocketFile { path: socket.path.clone(), identity: identity(&stat), group: stat.st_gid })
}

/// What stood at the path comes out under the temporary name, so that a socket which came to life meanwhile is seen
/// and put back.
fn move_into_place(temporary: &Path, path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => {}
        // A file system without these flags.
        Err(Errno::INVAL | Errno::NOSYS) => return std::fs::rename(temporary, path),
        Err(errno) => return Err(errno.into()),
    }
    rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::EXCHANGE)?;
    if let Err(error) = refuse_what_is_not_ours_to_replace(temporary) {
        rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::EXCHANGE)?;
        return Err(error);
    }
    std::fs::remove_file(temporary)
}

fn refuse_what_is_not_ours_to_replace(path: &Path) -> io::Result<()> {
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what is there is not a socket, and is not replaced"));
    }
    // Non-blocking: a queue that is full would hold up the whole process, for ever where the process is this one.
    let probe = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    match rustix::net::connect(&probe, &rustix::net::SocketAddrUnix::new(path)?) {
        // Our own: a reload binds the path anew before it lets the old socket go.
        Ok(()) if listens_here(&probe) => Ok(()),
        Err(Errno::AGAIN) if our_own().contains(&identity(&stat)) => Ok(()),
        // A full queue has an owner too.
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

fn listens_here(probe: impl AsFd) -> bool {
    rustix::net::sockopt::socket_peercred(probe).is_ok_and(|peer| peer.pid == rustix::process::getpid())
}

/// The files that this process has bound and not let go: who owns a socket whose queue is full, no caller can ask.
static OUR_OWN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

fn our_own() -> MutexGuard<'static, BTreeSet<(u64, u64)>> {
    OUR_OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0_u8; 4];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    // No longer than it must be: a socket's path has 107 bytes.
    Ok(path.with_file_name(format!(".{:08x}", u32::from_ne_bytes(random))))
}

const fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// How many callers may be queued.
pub(super) const BACKLOG: i32 = 1024;
