//! Creates and removes the file of a unix socket: never with wider rights than configured, never replacing a live
//! socket. Its folder is opened once, through no symlink that others could have placed, and all later steps use that
//! descriptor.

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

/// File of a bound socket; removed when dropped, if it is still the one that was created.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    folder: Dir,
    name: OsString,
    identity: (u64, u64),
    /// Group of the file.
    pub(super) group: u32,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        own_sockets().remove(&self.identity);
        let stat = self.folder.stat(Path::new(&self.name));
        let is_own = stat.is_ok_and(|stat| stat.is_some_and(|stat| identity(&stat) == self.identity));
        if is_own && let Err(error) = remove(&self.folder, &self.name) {
            tracing::warn!(
                event = "listener.socket.cleanup_failed",
                path = self.path.display().to_string(),
                error = error.to_string(),
                "cannot remove the socket file"
            );
        }
    }
}

/// Binds under a temporary name, listens, and renames the file to its path.
pub(super) fn bind(socket: &UnixSocket) -> io::Result<(UnixListener, SocketFile)> {
    let (folder, name) = Dir::open_parent(&socket.path).map_err(|error| folder_error(&error))?;
    check_replaceable(&folder, &name, &socket.path)?;
    let listener = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // The kernel takes the mode of a socket file from the unbound socket's mode less the umask (see `unix_bind_bsd`;
    // `unix(7)` omits it), so the file never has a wider mode.
    rustix::fs::fchmod(&listener, mode(socket))?;
    let temporary = temporary_name()?;
    let path = socket.path.with_file_name(&temporary);
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path)?)?;
    let file = finish(socket, folder, (&temporary, &name), &listener);
    Ok((UnixListener::from(listener), file?))
}

fn folder_error(error: &DirError) -> io::Error {
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
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
    if !is_own || FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another process replaced the socket while it was created; other users may write its folder",
        ));
    }
    let stat = match complete(socket, &file, &stat) {
        // Nobody can connect before `listen`.
        Ok(stat) => rustix::net::listen(listener, BACKLOG)
            .map_err(io::Error::from)
            .and_then(|()| move_into_place(&folder, (temporary, name), &socket.path))
            .map(|()| stat),
        Err(error) => Err(error),
    };
    let stat = stat.inspect_err(|_| {
        // The first error is the one to report.
        let _ = remove(&folder, temporary);
    })?;
    own_sockets().insert(identity(&stat));
    let (path, name) = (socket.path.clone(), name.to_owned());
    Ok(SocketFile { path, folder, name, identity: identity(&stat), group: stat.st_gid })
}

/// Sets the owner, the group and the mode bits that the umask removed.
fn complete(socket: &UnixSocket, file: &OwnedFd, stat: &Stat) -> io::Result<Stat> {
    if socket.owner.is_some() || socket.group.is_some() {
        let (owner, group) = (socket.owner.map(Uid::from_raw), socket.group.map(Gid::from_raw));
        rustix::fs::chownat(file, "", owner, group, AtFlags::EMPTY_PATH)?;
    }
    if stat.st_mode & 0o7777 != mode(socket).as_raw_mode() {
        // A descriptor of O_PATH has no other way to `chmod`.
        let descriptor_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmodat(CWD, descriptor_path, mode(socket), AtFlags::empty())?;
    }
    Ok(rustix::fs::fstat(file)?)
}

fn remove(folder: &Dir, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
}

/// Exchanges the two names, so that an old file at the path is checked under the temporary name and put back if a live
/// socket appeared meanwhile.
fn move_into_place(folder: &Dir, (temporary, name): (&OsStr, &OsStr), path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => {}
        // The file system does not support these flags.
        Err(Errno::INVAL | Errno::NOSYS) => return Ok(rustix::fs::renameat(folder, temporary, folder, name)?),
        Err(errno) => return Err(errno.into()),
    }
    rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE)?;
    if let Err(error) = check_replaceable(folder, temporary, &path.with_file_name(temporary)) {
        rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE)?;
        return Err(error);
    }
    remove(folder, temporary)
}

fn check_replaceable(folder: &Dir, name: &OsStr, path: &Path) -> io::Result<()> {
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

fn own_sockets() -> MutexGuard<'static, BTreeSet<(u64, u64)>> {
    OWN_SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn temporary_name() -> io::Result<OsString> {
    let mut random = [0_u8; 4];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the kernel returned no random bytes"))?;
    // Short, since a socket's path is limited to 107 bytes.
    Ok(format!(".{:08x}", u32::from_ne_bytes(random)).into())
}

const fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Length of the queue of unaccepted connections.
pub(super) const BACKLOG: i32 = 1024;
