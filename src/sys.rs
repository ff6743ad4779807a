//! What only the operating system can do. The one module that may hold `unsafe`, each block with its reason.
#![expect(unsafe_code, reason = "each block says why it is sound")]

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor to become readable, in tokio's reactor.
///
/// # Errors
/// The descriptor cannot be polled.
pub fn readable(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, so it stays open and the same for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Keeps secrets out of core dumps and out of reach of other processes of the same user: no core file, not dumpable,
/// not traceable without privilege.
///
/// # Errors
/// The kernel refused.
pub fn forbid_core_dumps() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// The id of a user, by name or number.
///
/// # Errors
/// The user database cannot be read.
pub fn user_id(name: &str) -> std::io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// The id of a group, by name or number.
///
/// # Errors
/// The group database cannot be read.
pub fn group_id(name: &str) -> std::io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The name of a group; `None` where the group database does not know it.
pub fn group_name(id: u32) -> Option<String> {
    nix::unistd::Group::from_gid(id.into()).ok().flatten().map(|group| group.name)
}

/// The supplementary groups that the peer of a unix socket had when it connected (`SO_PEERGROUPS`, Linux 4.13).
///
/// # Errors
/// The kernel is older, or the socket has no peer.
pub fn peer_groups(socket: impl AsFd) -> std::io::Result<Vec<u32>> {
    use nix::libc::{SO_PEERGROUPS, SOL_SOCKET, c_void, getsockopt, gid_t, socklen_t};
    let mut groups: Vec<gid_t> = vec![0; 64];
    loop {
        let mut bytes = socklen_t::try_from(groups.len() * size_of::<gid_t>()).map_err(std::io::Error::other)?;
        // SAFETY: the pointer and the length describe a live buffer of plain integers, and the kernel writes at most
        // that many bytes into it and tells the count; the descriptor is borrowed for the whole call.
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

/// Takes the sockets that the service manager passed to this process (`sd_listen_fds(3)`), each with its name, marked
/// so that children do not get them. `pid`, `count` and `names` are the values of `LISTEN_PID`, `LISTEN_FDS` and
/// `LISTEN_FDNAMES`. To be called once, before anything else opens or closes descriptors: it becomes their owner.
///
/// # Errors
/// A variable is malformed, or a descriptor that it promises is not open.
pub fn passed_sockets(pid: &str, count: &str, names: &str) -> std::io::Result<Vec<(String, OwnedFd)>> {
    use rustix::io::{FdFlags, fcntl_setfd};
    const FIRST: i32 = 3;
    let malformed = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, what.to_owned());
    if pid.parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: i32 = count.parse().map_err(|_| malformed("LISTEN_FDS is not a number"))?;
    let mut names = names.split(':');
    let mut sockets = Vec::new();
    for descriptor in FIRST..FIRST.saturating_add(count) {
        // SAFETY: this borrow ends with the call; on a descriptor that is not open the call fails and nothing is owned.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(descriptor) }, FdFlags::CLOEXEC)?;
        // SAFETY: it is open (above), and by the protocol of the service manager it was opened for this process alone;
        // nothing else here owns a descriptor that was there before the program started.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        sockets.push((names.next().unwrap_or_default().to_owned(), socket));
    }
    Ok(sockets)
}

/// Has a program started apart from this process: in a process group of its own, ended by SIGTERM when this process ends in
/// whatever way, and with no descriptor but the first three. It must be started from a thread that stays: the kernel sends that
/// signal when the thread ends that started it (`PR_SET_PDEATHSIG`).
pub fn start_apart(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt as _;
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        if rustix::process::getppid() != Some(parent) {
            // It ended before the kernel was told whom to watch.
            return Err(rustix::io::Errno::SRCH.into());
        }
        keep_three_descriptors();
        Ok(())
    };
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes system calls alone: it allocates nothing, takes no lock and does not
    // touch what other threads may have held.
    unsafe { command.pre_exec(prepare) };
}

/// Turns this process into another program, which gets the first three descriptors alone. Returns only where that failed.
pub fn become_program(command: &mut std::process::Command) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    keep_three_descriptors();
    command.exec()
}

/// Marks every descriptor but the first three to be closed when the program changes. Ours are so already; those that were
/// there when this process started need not be. A kernel before 5.11 cannot do it, and leaves those open.
fn keep_three_descriptors() {
    const CLOSE_RANGE_CLOEXEC: nix::libc::c_uint = 1 << 2;
    // SAFETY: the call takes three numbers and touches no memory of ours. Nothing is closed: descriptors in use stay usable.
    unsafe { nix::libc::syscall(nix::libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
}
