//! System calls and calls of AWS-LC that have no safe binding. The only module with `unsafe`; each block states why it
//! is sound.
#![expect(unsafe_code, reason = "each block says why it is sound")]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::null_mut;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use zeroize::Zeroizing;

/// Registers a descriptor with tokio's reactor for readability.
///
/// # Errors
/// The descriptor cannot be polled.
pub(crate) fn readable(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, so it stays open and the same for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Protects secrets in memory: no core file, not dumpable, and not traceable by other processes of the same user.
///
/// # Errors
/// The kernel refused.
pub(crate) fn forbid_core_dumps() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Looks up a user's id by name or number; `None` if there is no such user.
///
/// # Errors
/// The user database cannot be read.
pub(crate) fn user_id(name: &str) -> std::io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Looks up a group's id by name or number; `None` if there is no such group.
///
/// # Errors
/// The group database cannot be read.
pub(crate) fn group_id(name: &str) -> std::io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// Looks up a user by name or number: name, id and main group. `None` if there is no such user.
///
/// # Errors
/// The user database cannot be read.
pub(crate) fn user_entry(name: &str) -> std::io::Result<Option<(String, u32, u32)>> {
    use nix::unistd::User;
    let found = match name.parse::<u32>() {
        Ok(id) => User::from_uid(id.into())?,
        Err(_) => User::from_name(name)?,
    };
    Ok(found.map(|user| (user.name, user.uid.as_raw(), user.gid.as_raw())))
}

/// Returns the groups that a user gets at a login, the main one included.
///
/// # Errors
/// The name holds a zero byte, or the group database cannot be read.
pub(crate) fn groups_of(user: &str, main: u32) -> std::io::Result<Vec<u32>> {
    let groups = nix::unistd::getgrouplist(&std::ffi::CString::new(user)?, main.into())?;
    Ok(groups.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// Looks up the name of a group; `None` if it is unknown.
pub(crate) fn group_name(id: u32) -> Option<String> {
    nix::unistd::Group::from_gid(id.into()).ok().flatten().map(|group| group.name)
}

/// Returns the supplementary groups that the peer of a unix socket had when it connected (`SO_PEERGROUPS`, Linux 4.13).
///
/// # Errors
/// The kernel is older, or the socket has no peer.
pub(crate) fn peer_groups(socket: impl AsFd) -> std::io::Result<Vec<u32>> {
    use nix::libc::{SO_PEERGROUPS, SOL_SOCKET, c_void, getsockopt, gid_t, socklen_t};
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
///
/// # Errors
/// The kernel is older, or the process has ended.
pub(crate) fn peer_pidfd(socket: impl AsFd) -> std::io::Result<OwnedFd> {
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
pub(crate) struct PidfdInfo {
    mask: u64,
    /// Id of its cgroup of version 2: the inode of the cgroup's folder.
    pub(crate) cgroup_id: u64,
    pid: u32,
    /// Process id, as this process sees it.
    pub(crate) tgid: u32,
    ppid: u32,
    ruid: u32,
    rgid: u32,
    /// Effective user.
    pub(crate) euid: u32,
    /// Effective group.
    pub(crate) egid: u32,
    others: [u32; 5],
}

/// Reads the state of a process by its descriptor (`PIDFD_GET_INFO`, Linux 6.13).
///
/// # Errors
/// `ESRCH`: the process has ended. `EREMOTE`, formerly also `ESRCH`: it stands in a pid namespace that this process does not
/// see. Others: the kernel is older.
pub(crate) fn pidfd_info(process: impl AsFd) -> std::io::Result<PidfdInfo> {
    use rustix::ioctl::{Updater, ioctl, opcode};
    // PIDFD_INFO_PID, PIDFD_INFO_CREDS and PIDFD_INFO_CGROUPID.
    const WANTED: u64 = 0b111;
    let mut info = PidfdInfo { mask: WANTED, ..PidfdInfo::default() };
    // SAFETY: the operation takes a structure of this layout, whose size is part of the operation's number, and the kernel
    // writes no more than that size into it.
    unsafe {
        ioctl(process, Updater::<{ opcode::read_write::<PidfdInfo>(0xff, 11) }, PidfdInfo>::new(&mut info))?;
    }
    // The kernel clears what it could not tell.
    if info.mask & WANTED == WANTED { Ok(info) } else { Err(std::io::ErrorKind::Unsupported.into()) }
}

/// Takes ownership of the sockets that the service manager passed to this process (`sd_listen_fds(3)`), each with its
/// name, and marks them close-on-exec. `pid`, `count` and `names` are the values of `LISTEN_PID`, `LISTEN_FDS` and
/// `LISTEN_FDNAMES`. Call it once, before anything else opens or closes descriptors.
///
/// # Errors
/// A variable is malformed, or a descriptor that it promises is not open.
pub(crate) fn passed_sockets(pid: &str, count: &str, names: &str) -> std::io::Result<Vec<(String, OwnedFd)>> {
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
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes system calls alone: it allocates nothing, takes no lock and does not
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

/// Content of a PKCS#12 file.
pub(crate) struct Pkcs12 {
    /// The private key: PKCS#8, DER.
    pub key: Zeroizing<Vec<u8>>,
    /// The certificates, DER, the key's own first.
    pub certificates: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Pkcs12 {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pkcs12").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}

/// Reads a PKCS#12 file with this password. An empty password opens a file without one.
///
/// # Errors
/// The password does not open it, or the file is damaged or holds no key.
pub(crate) fn read_pkcs12(file: &[u8], password: &CStr) -> Result<Pkcs12, KeyFileError> {
    let mut input = MaybeUninit::<aws_lc_sys::CBS>::uninit();
    let mut key = PrivateKey(null_mut());
    // SAFETY: the constructor takes nothing; the stack is checked, owned by its guard and holds certificates alone.
    let certificates = CertificateStack(unsafe { aws_lc_sys::OPENSSL_sk_new_null() });
    if certificates.0.is_null() {
        return Err(KeyFileError::Unreadable);
    }
    // SAFETY: `input` is initialised before it is used and borrows `file`, which outlives the call; the other pointers are
    // live, and what the call puts there is owned by their guards. The error queue belongs to this thread.
    let (outcome, wrong_password) = unsafe {
        aws_lc_sys::ERR_clear_error();
        aws_lc_sys::CBS_init(input.as_mut_ptr(), file.as_ptr(), file.len());
        let outcome = aws_lc_sys::PKCS12_get_key_and_certs(
            &raw mut key.0,
            certificates.0.cast(),
            input.as_mut_ptr(),
            password.as_ptr(),
        );
        let error = aws_lc_sys::ERR_peek_last_error();
        aws_lc_sys::ERR_clear_error();
        // The library in the highest byte, the reason in the lowest twelve bits (`ERR_GET_LIB`, `ERR_GET_REASON`).
        let (library, reason) = (i64::from(error >> 24), i64::from(error & 0xfff));
        let wrong = (i64::from(aws_lc_sys::ERR_LIB_PKCS12), i64::from(aws_lc_sys::PKCS12_R_MAC_VERIFY_FAILURE));
        (outcome, (library, reason) == wrong)
    };
    if outcome != 1 {
        return Err(if wrong_password { KeyFileError::WrongPassword } else { KeyFileError::Unreadable });
    }
    let mut list = certificates.to_der(&key).ok_or(KeyFileError::Unreadable)?;
    // The sort is stable: the rest of the chain stays in the order of the file.
    list.sort_by_key(|(of_key, _)| !of_key);
    let key = key.to_pkcs8().ok_or(KeyFileError::Unreadable)?;
    Ok(Pkcs12 { key, certificates: list.into_iter().map(|(_, der)| der).collect() })
}

/// Reads the first private key of a PEM text, encrypted with this password: PKCS#8, or the older form whose head says
/// `Proc-Type: 4,ENCRYPTED`. Returns the key as PKCS#8 (DER).
///
/// # Errors
/// The password does not open the key. A damaged key looks the same.
pub(crate) fn decrypt_pem_key(pem: &[u8], password: &CStr) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let length = isize::try_from(pem.len()).map_err(|_| KeyFileError::Unreadable)?;
    // SAFETY: the memory BIO borrows `pem`, which outlives it, and is freed here. Without a callback the library reads the
    // password from the last argument, a C string, and writes nothing there.
    let key = unsafe {
        let source = aws_lc_sys::BIO_new_mem_buf(pem.as_ptr().cast(), length);
        if source.is_null() {
            return Err(KeyFileError::Unreadable);
        }
        let password = password.as_ptr().cast_mut().cast();
        let key = aws_lc_sys::PEM_read_bio_PrivateKey(source, null_mut(), None, password);
        aws_lc_sys::BIO_free(source);
        aws_lc_sys::ERR_clear_error();
        PrivateKey(key)
    };
    if key.0.is_null() { Err(KeyFileError::WrongPassword) } else { key.to_pkcs8().ok_or(KeyFileError::Unreadable) }
}

/// A key file that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFileError {
    /// The password does not open it.
    WrongPassword,
    /// It is damaged, or holds no key.
    Unreadable,
}

/// Owner of a private key of the C library; may be null.
struct PrivateKey(*mut aws_lc_sys::EVP_PKEY);

impl PrivateKey {
    /// The key as PKCS#8 (DER); `None` without a key.
    fn to_pkcs8(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut buffer = MaybeUninit::<aws_lc_sys::CBB>::uninit();
        let (mut bytes, mut length) = (null_mut::<u8>(), 0);
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the buffer is initialised before its other use and released on both ways out; on success the library gives
        // `length` bytes at `bytes`, which are copied and freed (the library zeroes what it frees).
        unsafe {
            if aws_lc_sys::CBB_init(buffer.as_mut_ptr(), 0) != 1 {
                return None;
            }
            let written = aws_lc_sys::EVP_marshal_private_key(buffer.as_mut_ptr(), self.0) == 1
                && aws_lc_sys::CBB_finish(buffer.as_mut_ptr(), &raw mut bytes, &raw mut length) == 1;
            if !written {
                aws_lc_sys::CBB_cleanup(buffer.as_mut_ptr());
                aws_lc_sys::ERR_clear_error();
                return None;
            }
            let copy = Zeroizing::new(std::slice::from_raw_parts(bytes, length).to_vec());
            aws_lc_sys::OPENSSL_free(bytes.cast());
            Some(copy)
        }
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        // SAFETY: it is owned here alone; null is allowed.
        unsafe { aws_lc_sys::EVP_PKEY_free(self.0) };
    }
}

/// Owner of a stack of certificates of the C library.
struct CertificateStack(*mut aws_lc_sys::OPENSSL_STACK);

impl CertificateStack {
    /// Each certificate (DER), and if it is that of the key.
    fn to_der(&self, key: &PrivateKey) -> Option<Vec<(bool, Vec<u8>)>> {
        // SAFETY: the stack is live and holds certificates alone. With a null output pointer the encoder only returns the
        // length; with a buffer of that length it writes as much.
        unsafe {
            (0..aws_lc_sys::OPENSSL_sk_num(self.0))
                .map(|index| {
                    let certificate: *mut aws_lc_sys::X509 = aws_lc_sys::OPENSSL_sk_value(self.0, index).cast();
                    let length = usize::try_from(aws_lc_sys::i2d_X509(certificate, null_mut())).ok()?;
                    let mut der = vec![0_u8; length];
                    let mut end = der.as_mut_ptr();
                    let written = aws_lc_sys::i2d_X509(certificate, &raw mut end);
                    let of_key = !key.0.is_null() && aws_lc_sys::X509_check_private_key(certificate, key.0) == 1;
                    aws_lc_sys::ERR_clear_error();
                    (usize::try_from(written) == Ok(length)).then_some((of_key, der))
                })
                .collect()
        }
    }
}

impl Drop for CertificateStack {
    fn drop(&mut self) {
        // SAFETY: the stack and the certificates on it are owned here alone; popping an empty or null stack gives null.
        unsafe {
            loop {
                let certificate: *mut aws_lc_sys::X509 = aws_lc_sys::OPENSSL_sk_pop(self.0).cast();
                if certificate.is_null() {
                    break;
                }
                aws_lc_sys::X509_free(certificate);
            }
            aws_lc_sys::OPENSSL_sk_free(self.0);
        }
    }
}
