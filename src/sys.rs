//! What only the operating system can do. The one module that may hold `unsafe`, each block with its reason.
#![expect(unsafe_code, reason = "each block says why it is sound")]

use std::os::fd::OwnedFd;

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
