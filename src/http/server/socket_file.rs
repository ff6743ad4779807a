//! Creates and removes the file of a unix socket: never with wider rights than configured, never replacing a live
//! socket. Its folder is opened once, through no symlink that others could have placed, and all later steps use that
//! descriptor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use keyward_machine::os;
use keyward_machine::secure_dir::{Dir, DirError};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::UnixSocket;
use super::stale_socket::{check_replaceable, identity, own_sockets};

/// File of a bound socket; removed when dropped, if it is still the one that was created.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    folder: Dir,
    name: OsString,
    temporary: OsString,
    placement: Mutex<Placement>,
    identity: (u64, u64),
    /// Group of the file.
    pub(super) group: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// The file has its temporary name.
    Temporary,
    /// The file is at its path, and the one that it replaced has the temporary name.
    Exchanged,
    /// The file is at its path.
    Final,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        own_sockets().remove(&self.identity);
        if let Err(error) = self.withdraw() {
            log_cleanup_failure(&self.path, &error);
        }
    }
}

impl SocketFile {
    /// Moves the file to its path, unless it is there already. The file that it replaces is put back if this one is
    /// dropped before [`SocketFile::discard_replaced`].
    pub(super) fn place(&self) -> io::Result<()> {
        let mut placement = self.placement.lock();
        if *placement == Placement::Temporary {
            *placement = move_into_place(&self.folder, &self.temporary, &self.name, &self.path)?;
        }
        Ok(())
    }

    /// Removes the file that this one replaced.
    pub(super) fn discard_replaced(&self) {
        let mut placement = self.placement.lock();
        if *placement == Placement::Exchanged {
            *placement = Placement::Final;
            if let Err(error) = remove(&self.folder, &self.temporary) {
                log_cleanup_failure(&self.path.with_file_name(&self.temporary), &error);
            }
        }
    }

    /// Removes the file, and puts back the one that it replaced.
    fn withdraw(&self) -> io::Result<()> {
        let placement = *self.placement.lock();
        if placement == Placement::Exchanged && self.has_name(&self.name) {
            exchange(&self.folder, &self.temporary, &self.name)?;
        }
        let name = if placement == Placement::Final { &self.name } else { &self.temporary };
        if self.has_name(name) { remove(&self.folder, name) } else { Ok(()) }
    }

    /// Returns true if the file of this name is the bound one: an administrator, or a process that runs beside this one, may have
    /// replaced it.
    fn has_name(&self, name: &OsStr) -> bool {
        let stat = self.folder.stat(Path::new(name));
        stat.is_ok_and(|stat| stat.is_some_and(|stat| identity(&stat) == self.identity))
    }
}

fn log_cleanup_failure(path: &Path, error: &io::Error) {
    tracing::warn!(
        event = "listener.socket.cleanup_failed",
        path = path.display().to_string(),
        error = error.to_string(),
        "cannot remove the socket file"
    );
}

/// Binds under a temporary name and listens. [`SocketFile::place`] moves the file to its path.
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
    let file = finish(socket, folder, temporary, name, &listener);
    Ok((UnixListener::from(listener), file?))
}

fn folder_error(error: &DirError) -> io::Error {
    let kind = match error {
        DirError::Open { source, .. } => source.kind(),
        _ => io::ErrorKind::PermissionDenied,
    };
    io::Error::new(kind, keyward_telemetry::error_chain::format_chain(error))
}

const fn mode(socket: &UnixSocket) -> Mode {
    Mode::from_raw_mode(socket.mode as RawMode)
}

fn finish(
    socket: &UnixSocket,
    folder: Dir,
    temporary: OsString,
    name: OsString,
    listener: &OwnedFd,
) -> io::Result<SocketFile> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, &*temporary, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
    if !is_own || FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another process replaced the socket while it was created; other users may write its folder",
        ));
    }
    let stat = complete(socket, &file, &stat).and_then(|stat| {
        // Nobody can connect before `listen`.
        rustix::net::listen(listener, BACKLOG)?;
        Ok(stat)
    });
    let stat = stat.inspect_err(|_| {
        // The first error is the one to report.
        let _ = remove(&folder, &temporary);
    })?;
    own_sockets().insert(identity(&stat));
    let path = socket.path.clone();
    let placement = Mutex::new(Placement::Temporary);
    Ok(SocketFile { path, folder, name, temporary, placement, identity: identity(&stat), group: stat.st_gid })
}

/// Sets the owner, the group and the mode bits that the umask removed.
fn complete(socket: &UnixSocket, file: &OwnedFd, stat: &Stat) -> io::Result<Stat> {
    if socket.owner.is_some() || socket.group.is_some() {
        let owner = socket.owner.map(Uid::from_raw);
        let group = socket.group.map(Gid::from_raw);
        rustix::fs::chownat(file, "", owner, group, AtFlags::EMPTY_PATH).map_err(|errno| owner_error(socket, errno))?;
    }
    if stat.st_mode & 0o7777 != mode(socket).as_raw_mode() {
        // A descriptor of O_PATH has no other way to `chmod`.
        let descriptor_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmodat(CWD, descriptor_path, mode(socket), AtFlags::empty())?;
    }
    Ok(rustix::fs::fstat(file)?)
}

/// Reason why the process may not set the configured owner or group.
#[derive(Debug, thiserror::Error)]
pub enum SocketOwnerError {
    /// The process is not in the group.
    #[error(
        "user {user} is not in the group {group} that the socket is for; set SupplementaryGroups={group} in the unit, or add \
         the user to the group"
    )]
    Group {
        /// The process's user.
        user: String,
        /// The configured group.
        group: String,
    },
    /// The owner is another user.
    #[error(
        "user {user} may not give the socket to another owner; set `group` without `owner`, or AmbientCapabilities=CAP_CHOWN in the unit"
    )]
    Owner {
        /// The process's user.
        user: String,
    },
}

/// Explains a refused change of owner or group, if it is refused for want of a right.
fn owner_error(socket: &UnixSocket, errno: Errno) -> io::Error {
    if errno != Errno::PERM {
        return errno.into();
    }
    let euid = rustix::process::geteuid().as_raw();
    let user = os::user_name(euid).unwrap_or_else(|| euid.to_string());
    let error = match (socket.owner, socket.group) {
        (Some(owner), _) if owner != euid => SocketOwnerError::Owner { user },
        (_, Some(group)) if !os::is_in_group(group) => {
            SocketOwnerError::Group { user, group: os::group_name(group).unwrap_or_else(|| group.to_string()) }
        }
        // A filter of system calls refuses with the same error.
        _ => return errno.into(),
    };
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

fn remove(folder: &Dir, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
}

/// Exchanges the two names, so that an old file at the path is checked under the temporary name and put back if a live
/// socket appeared meanwhile.
fn move_into_place(folder: &Dir, temporary: &OsStr, name: &OsStr, path: &Path) -> io::Result<Placement> {
    match rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(Placement::Final),
        Err(Errno::EXIST) => {}
        // The file system does not support these flags, so a file that is replaced cannot be put back.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::renameat(folder, temporary, folder, name)?;
            return Ok(Placement::Final);
        }
        Err(errno) => return Err(errno.into()),
    }
    exchange(folder, temporary, name)?;
    if let Err(error) = check_replaceable(folder, temporary, &path.with_file_name(temporary)) {
        exchange(folder, temporary, name)?;
        return Err(error);
    }
    Ok(Placement::Exchanged)
}

fn exchange(folder: &Dir, first: &OsStr, second: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(folder, first, folder, second, RenameFlags::EXCHANGE)?)
}

fn temporary_name() -> io::Result<OsString> {
    let mut random = [0_u8; 4];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the kernel returned no random bytes"))?;
    // Short, since a socket's path is limited to 107 bytes.
    Ok(format!(".{:08x}", u32::from_ne_bytes(random)).into())
}

/// Length of the queue of unaccepted connections.
pub(super) const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests;
