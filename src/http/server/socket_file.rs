//! A unix socket's file: made without a moment of wrong rights, never taken from a live owner, removed by its maker. Its folder is
//! opened once, through no symlink that others could have placed; what is done to the file is done by descriptor.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::UnixSocket;
use crate::secure_dir::{Dir, DirError};

/// The file of a bound socket. Dropped, it removes the file, if that is still the one that it made.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    folder: Dir,
    name: OsString,
    identity: (u64, u64),
    /// The group that the file belongs to.
    pub(super) group: u32,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        our_own().remove(&self.identity);
        let found = self.folder.stat(Path::new(&self.name));
        let ours = found.is_ok_and(|stat| stat.is_some_and(|stat| identity(&stat) == self.identity));
        if ours && let Err(error) = remove(&self.folder, &self.name) {
            tracing::warn!(event = "listener.socket.left", path = %self.path.display(), %error, "a socket stays behind");
        }
    }
}

/// Binds and listens: under a name of its own first, then moved into place.
pub(super) fn bind(socket: &UnixSocket) -> io::Result<(UnixListener, SocketFile)> {
    let (folder, name) = Dir::open_parent(&socket.path).map_err(|error| without_folder(&error))?;
    refuse_what_is_not_ours_to_replace(&folder, &name, &socket.path)?;
    let listener = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // The kernel takes a socket file's mode from the unbound socket's, less the umask (`unix(7)` leaves it out,
    // `unix_bind_bsd` has it): from the moment that the file has a name it is no wider than this.
    rustix::fs::fchmod(&listener, mode(socket))?;
    let temporary = temporary_name()?;
    let path = socket.path.with_file_name(&temporary);
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path)?)?;
    let made = finish(socket, folder, (&temporary, &name), &listener);
    Ok((UnixListener::from(listener), made?))
}

fn without_folder(error: &DirError) -> io::Error {
    let kind = match error {
        DirError::Open { source, .. } => source.kind(),
        _ => io::ErrorKind::PermissionDenied,
    };
    io::Error::new(kind, crate::error_chain::format_chain(error))
}

const fn mode(socket: &UnixSocket) -> Mode {
    Mode::from_raw_mode(socket.mode as RawMode)
}

fn finish(
    socket: &UnixSocket,
    folder: Dir,
    (temporary, name): (&OsStr, &OsStr),
    listener: &OwnedFd,
) -> io::Result<SocketFile> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, temporary, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
    if !ours || FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another file took the socket's place while it was made; others may write in its folder",
        ));
    }
    let stat = match complete(socket, &file, &stat) {
        // Nobody could connect before this.
        Ok(stat) => rustix::net::listen(listener, BACKLOG)
            .map_err(io::Error::from)
            .and_then(|()| move_into_place(&folder, (temporary, name), &socket.path))
            .map(|()| stat),
        Err(error) => Err(error),
    };
    let stat = stat.inspect_err(|_| {
        // The first error is the one to tell.
        let _ = remove(&folder, temporary);
    })?;
    our_own().insert(identity(&stat));
    let (path, name) = (socket.path.clone(), name.to_owned());
    Ok(SocketFile { path, folder, name, identity: identity(&stat), group: stat.st_gid })
}

/// Gives the file its owner and group, and what the umask took of its mode.
fn complete(socket: &UnixSocket, file: &OwnedFd, stat: &Stat) -> io::Result<Stat> {
    if socket.owner.is_some() || socket.group.is_some() {
        let (owner, group) = (socket.owner.map(Uid::from_raw), socket.group.map(Gid::from_raw));
        rustix::fs::chownat(file, "", owner, group, AtFlags::EMPTY_PATH)?;
    }
    if stat.st_mode & 0o7777 != mode(socket).as_raw_mode() {
        // The way to a file by its descriptor, where that was opened for its place alone.
        let place = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmodat(CWD, place, mode(socket), AtFlags::empty())?;
    }
    Ok(rustix::fs::fstat(file)?)
}

fn remove(folder: &Dir, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
}

/// What stood at the path comes out under the temporary name, so that a socket which came to life meanwhile is seen
/// and put back.
fn move_into_place(folder: &Dir, (temporary, name): (&OsStr, &OsStr), path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => {}
        // A file system without these flags.
        Err(Errno::INVAL | Errno::NOSYS) => return Ok(rustix::fs::renameat(folder, temporary, folder, name)?),
        Err(errno) => return Err(errno.into()),
    }
    rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE)?;
    if let Err(error) = refuse_what_is_not_ours_to_replace(folder, temporary, &path.with_file_name(temporary)) {
        rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE)?;
        return Err(error);
    }
    remove(folder, temporary)
}

fn refuse_what_is_not_ours_to_replace(folder: &Dir, name: &OsStr, path: &Path) -> io::Result<()> {
    let Some(stat) = folder.stat(Path::new(name))? else { return Ok(()) };
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

fn temporary_name() -> io::Result<OsString> {
    let mut random = [0_u8; 4];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    // No longer than it must be: a socket's path has 107 bytes.
    Ok(format!(".{:08x}", u32::from_ne_bytes(random)).into())
}

const fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// How many callers may be queued.
pub(super) const BACKLOG: i32 = 1024;
