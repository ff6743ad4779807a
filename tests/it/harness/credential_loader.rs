//! Loads credentials as systemd does: from a socket that is bound to a name which says the unit and the credential.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Gid, Uid};

/// The user and group `nobody`.
pub(crate) const NOBODY: u32 = 65534;

/// Reads what the socket at `path` gives a peer with this abstract name, to the end.
pub(crate) fn load_by_name(path: &Path, name: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = connect(path, name)?;
    let mut value = Vec::new();
    stream.read_to_end(&mut value)?;
    Ok(value)
}

/// Connects as systemd does (`read_full_file_full`): bound, and with its own side closed for writing.
pub(crate) fn connect(path: &Path, name: &[u8]) -> std::io::Result<UnixStream> {
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if !name.is_empty() {
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut stream = UnixStream::from(socket);
    stream.flush()?;
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

/// Name of systemd's socket when `unit` loads `credential`; each differs by a number.
pub(crate) fn name(unit: &str, credential: &str) -> Vec<u8> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = (u64::from(std::process::id()) << 32) | u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
    format!("{number:x}/unit/{unit}/{credential}").into_bytes()
}

/// Loads a credential for a unit.
pub(crate) fn load(path: &Path, unit: &str, credential: &str) -> std::io::Result<Vec<u8>> {
    load_by_name(path, &name(unit, credential))
}

/// Runs something on a thread that has this user and group.
pub(crate) fn as_user<T: Send>(uid: u32, gid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}
