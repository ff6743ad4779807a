//! System calls and calls of AWS-LC that have no safe binding. The only module with `unsafe`, with those in its folder; each
//! block states why it is sound.
#![expect(unsafe_code, reason = "each block says why it is sound")]

mod allocator;
mod key_files;
mod program_pages;
mod protected_memory;

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use allocator::ZeroingAllocator;
pub use key_files::{KeyFileError, decrypt_pem_key, read_pkcs12, write_pkcs12};
pub use program_pages::{page_release_requested, release_program_pages, request_page_release};
pub(crate) use protected_memory::ProtectedBytes;
pub use protected_memory::{MemoryProtection, protected_memory, protected_memory_changed};

/// Registers a descriptor with tokio's reactor for readability.
pub fn readable(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, so it stays open and the same for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Protects secrets in memory: no core file, not dumpable, and not traceable by other processes of the same user.
pub fn forbid_core_dumps() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    // The limit alone does not stop a core that is piped to a program (core(5), `core_pattern`): see the next call.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Looks up a user's id by name or number; `None` if there is no such user.
pub fn user_id(name: &str) -> std::io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Looks up a group's id by name or number; `None` if there is no such group.
pub fn group_id(name: &str) -> std::io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// Looks up a user by name or number: name, id and main group. `None` if there is no such user.
pub fn user_entry(name: &str) -> std::io::Result<Option<(String, u32, u32)>> {
    use nix::unistd::User;
    let user = match name.parse::<u32>() {
        Ok(id) => User::from_uid(id.into())?,
        Err(_) => User::from_name(name)?,
    };
    Ok(user.map(|user| (user.name, user.uid.as_raw(), user.gid.as_raw())))
}

/// Returns the groups that a user gets at a login, the main one included.
pub fn groups_of(user: &str, main: u32) -> std::io::Result<Vec<u32>> {
    let groups = nix::unistd::getgrouplist(&std::ffi::CString::new(user)?, main.into())?;
    Ok(groups.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// Looks up the name of a user; `None` if it is unknown.
pub fn user_name(id: u32) -> Option<String> {
    nix::unistd::User::from_uid(id.into()).ok().flatten().map(|user| user.name)
}

/// Looks up the name of a group; `None` if it is unknown.
pub fn group_name(id: u32) -> Option<String> {
    nix::unistd::Group::from_gid(id.into()).ok().flatten().map(|group| group.name)
}

/// Returns true if this process is a member of a group, by its effective or supplementary groups.
pub fn is_in_group(id: u32) -> bool {
    use rustix::process::{getegid, getgroups};
    getegid().as_raw() == id || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == id))
}

/// Returns the supplementary groups that the peer of a unix socket had when it connected (`SO_PEERGROUPS`, Linux 4.13).
pub fn peer_groups(socket: impl AsFd) -> std::io::Result<Vec<u32>> {
    use nix::libc::{SO_PEERGROUPS, SOL_SOCKET, c_void, getsockopt, gid_t, socklen_t};
    // Most users are in fewer groups. Otherwise the call fails with ERANGE and says how many there are.
    let mut groups: Vec<gid_t> = vec![0; 64];
    loop {
        let mut bytes = socklen_t::try_from(groups.len() * size_of::<gid_t>()).map_err(std::io::Error::other)?;
        // SAFETY: the pointer and the length describe a live buffer of plain integers, and the kernel writes at most
        // that many bytes into it and returns the count; the descriptor is borrowed for the whole call.
        let outcome = unsafe {
            let descriptor = socket.as_fd().as_raw_fd();
            getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, groups.as_mut_ptr().cast::<c_void>(), &raw mut bytes)
        };
        let count = usize::try_from(bytes).map_err(std::io::Error::other)? / size_of::<gid_t>();
        if outcome == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(nix::libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// Returns a descriptor of the process that connected a unix socket (`SO_PEERPIDFD`, Linux 6.5). It names that process even
/// after its id was given to another one.
pub fn peer_pidfd(socket: impl AsFd) -> std::io::Result<OwnedFd> {
    use nix::libc::{SOL_SOCKET, c_int, c_void, getsockopt, socklen_t};
    // From asm-generic/socket.h; the libc crate lacks it.
    const SO_PEERPIDFD: c_int = 77;
    let mut descriptor: c_int = -1;
    let mut bytes = socklen_t::try_from(size_of::<c_int>()).map_err(std::io::Error::other)?;
    // SAFETY: the pointer and the length describe a live integer; the descriptor is borrowed for the whole call.
    let outcome = unsafe {
        let socket = socket.as_fd().as_raw_fd();
        getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, (&raw mut descriptor).cast::<c_void>(), &raw mut bytes)
    };
    if outcome != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this call, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// State of a process: `struct pidfd_info` of linux/pidfd.h, in its first published size.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct PidfdInfo {
    mask: u64,
    /// Id of its cgroup of version 2: the inode of the cgroup's folder.
    pub cgroup_id: u64,
    pid: u32,
    /// Process id, as this process sees it.
    pub(crate) tgid: u32,
    ppid: u32,
    ruid: u32,
    rgid: u32,
    /// Effective user.
    pub euid: u32,
    /// Effective group.
    pub egid: u32,
    other_fields: [u32; 5],
}

/// Reads the state of a process by its descriptor (`PIDFD_GET_INFO`, Linux 6.13).
///
/// # Errors
/// `ESRCH`: the process has ended. `EREMOTE`, formerly also `ESRCH`: it stands in a pid namespace that this process does not
/// see. Others: the kernel is older.
pub fn pidfd_info(process: impl AsFd) -> std::io::Result<PidfdInfo> {
    use rustix::ioctl::{Updater, ioctl, opcode};
    // PIDFD_INFO_PID, PIDFD_INFO_CREDS and PIDFD_INFO_CGROUPID.
    const WANTED: u64 = 0b111;
    let mut info = PidfdInfo { mask: WANTED, ..PidfdInfo::default() };
    // SAFETY: the operation takes a structure of this layout, whose size is part of the operation's number, and the kernel
    // writes no more than that size into it.
    unsafe {
        ioctl(process, Updater::<{ opcode::read_write::<PidfdInfo>(0xff, 11) }, PidfdInfo>::new(&mut info))?;
    }
    // The kernel clears the mask bits of fields it did not fill in.
    if info.mask & WANTED == WANTED { Ok(info) } else { Err(std::io::ErrorKind::Unsupported.into()) }
}

/// Takes ownership of the sockets that the service manager passed to this process (`sd_listen_fds(3)`), each with its
/// name, and marks them close-on-exec. `pid`, `count` and `names` are the values of `LISTEN_PID`, `LISTEN_FDS` and
/// `LISTEN_FDNAMES`. Call it once, before anything else opens or closes descriptors.
pub fn take_passed_sockets(pid: &str, count: &str, names: &str) -> std::io::Result<Vec<(String, OwnedFd)>> {
    use rustix::io::{FdFlags, fcntl_setfd};
    const FIRST: i32 = 3;
    let malformed = |variable: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, variable.to_owned());
    // The variables may have been inherited from another process that the descriptors were for (sd_listen_fds(3)).
    if pid.parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: i32 = count.parse().map_err(|_| malformed("LISTEN_FDS is not a number"))?;
    let mut names = names.split(':');
    let mut sockets = Vec::new();
    for descriptor in FIRST..FIRST.saturating_add(count) {
        // SAFETY: this borrow ends with the call; on a descriptor that is not open the call fails and nothing is owned.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(descriptor) }, FdFlags::CLOEXEC)?;
        // SAFETY: it is open (above), and by the protocol of the service manager it was opened for this process only;
        // nothing else here owns a descriptor that was there before the program started.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        sockets.push((names.next().unwrap_or_default().to_owned(), socket));
    }
    Ok(sockets)
}

/// Takes ownership of a socket that the parent passed to this program by its number, and marks it close-on-exec. Call it once,
/// before anything else opens or closes descriptors.
pub(crate) fn take_passed_socket(descriptor: i32) -> std::io::Result<OwnedFd> {
    use rustix::io::{FdFlags, fcntl_setfd};
    // SAFETY: this borrow ends with the calls; on a descriptor that is not open they fail and nothing is owned.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    // A file under that number is not the parent's socket.
    rustix::net::sockopt::socket_type(borrowed)?;
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open (above), and the parent opened it for this process only; nothing else here owns a descriptor that was
    // there before the program started.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Configures a command to run isolated from this process: in its own process group, with no descriptors but the first
/// three, and ended by SIGTERM when this process ends. Start it from a thread that lives on: the kernel sends the
/// signal when the thread that started the child ends (`PR_SET_PDEATHSIG`).
pub(crate) fn isolate_child(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt as _;
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        if rustix::process::getppid() != Some(parent) {
            // The parent ended before the death signal was set.
            return Err(rustix::io::Errno::SRCH.into());
        }
        close_on_exec_above_stdio();
        Ok(())
    };
    // `kill` then also reaches what the program has started.
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes system calls only: it allocates nothing, takes no lock and does not
    // touch what other threads may have held.
    unsafe { command.pre_exec(prepare) };
}

/// Replaces this process by another program, which inherits the first three descriptors only. Returns only on failure.
pub(crate) fn exec_program(command: &mut std::process::Command) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    close_on_exec_above_stdio();
    command.exec()
}

/// Marks every descriptor but the first three close-on-exec. Descriptors of this program are so already; inherited ones
/// may not be. A kernel before 5.11 lacks the call and leaves those open.
fn close_on_exec_above_stdio() {
    const CLOSE_RANGE_CLOEXEC: nix::libc::c_uint = 1 << 2;
    // SAFETY: the call takes three numbers and touches no memory of ours. Nothing is closed: descriptors in use stay usable.
    unsafe { nix::libc::syscall(nix::libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
}
