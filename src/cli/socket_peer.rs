//! Checks who listens on the agent's unix socket, before a command sends a key to it or uses what it answers. In a folder
//! that others may write, another program could listen there.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use keyward_config::Environment;
use keyward_http::client::{ServerAddress, is_loopback};
use keyward_machine::os;
use keyward_telemetry::error_code::ErrorCode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Exit, print_error_with_code};

/// Variable with the user of an agent that is neither root, this user, nor the owner of its socket's folder.
const AGENT_USER_VARIABLE: &str = "KEYWARD_AGENT_USER";

/// Addresses that commands take.
pub(super) const ADDRESSES: &str = "write unix:///PATH, /PATH or http://127.0.0.1:PORT";

/// True for an address beyond this machine, to which a key or a token would go in plain text.
pub(super) fn is_remote(address: &ServerAddress) -> bool {
    matches!(address, ServerAddress::Url(url) if !is_loopback(url))
}

/// Checks the listening process of a unix socket; prints the error. Nothing is wrong with a socket on which nobody listens:
/// the call itself reports that.
pub(super) fn check_socket_peer(address: &ServerAddress, environment: &Environment) -> Result<(), Exit> {
    let ServerAddress::Unix(socket) = address else { return Ok(()) };
    let named = environment.variables.get(AGENT_USER_VARIABLE).filter(|text| !text.is_empty());
    let checked = match named.map(|text| parse_user(text)).transpose() {
        Ok(named) => check(socket, named),
        Err(why) => Err(why),
    };
    checked.map_err(|why| {
        print_error_with_code(ErrorCode::UnsafePermissions, &why);
        Exit::Denied
    })
}

fn parse_user(text: &str) -> Result<u32, String> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    match os::user_id(text) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => {
            Err(format!("{AGENT_USER_VARIABLE} is {text:?}: no such user on this machine; write a name or a number"))
        }
        Err(error) => Err(format!("{AGENT_USER_VARIABLE} is {text:?}: cannot look up the user: {error}")),
    }
}

fn check(socket: &Path, named: Option<u32>) -> Result<(), String> {
    let peer = match peer_user(socket) {
        Ok(Some(peer)) => peer,
        Ok(None) => return Ok(()),
        Err(error) => return Err(format!("cannot tell who listens on {}: {error}; try again", socket.display())),
    };
    let own = rustix::process::geteuid().as_raw();
    let folder_owner = socket.parent().and_then(|folder| folder.metadata().ok()).map(|folder| folder.uid());
    if is_expected(peer, own, folder_owner, named) {
        return Ok(());
    }
    let name = |id: u32| os::user_name(id).unwrap_or_else(|| id.to_string());
    let peer = name(peer);
    let owner = folder_owner.map_or_else(|| "unknown".to_owned(), name);
    Err(format!(
        "user {peer} listens on the socket {}, who is neither root, nor this user, nor the owner of its folder ({owner}); \
         if the agent runs as {peer}, set {AGENT_USER_VARIABLE}={peer}",
        socket.display()
    ))
}

/// Returns true if a user may be the agent's. Who owns the folder decides what is in it.
fn is_expected(peer: u32, own: u32, folder_owner: Option<u32>, named: Option<u32>) -> bool {
    match named {
        Some(named) => peer == named,
        None => peer == 0 || peer == own || folder_owner == Some(peer),
    }
}

/// Returns the user of the process that listens on a socket; `None` if nobody listens, or this user may not connect.
fn peer_user(socket: &Path) -> Result<Option<u32>, Errno> {
    // Without waiting: a process that accepts nothing would hold the command.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(socket)?) {
        Ok(()) => Ok(Some(rustix::net::sockopt::socket_peercred(&probe)?.uid.as_raw())),
        // A full queue: who listens is unknown.
        Err(Errno::AGAIN) => Err(Errno::AGAIN),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::is_expected;

    #[test]
    fn root_this_user_and_the_owner_of_the_folder_may_listen_or_the_named_user_alone() {
        let check = |peer, folder_owner, named, expected| {
            assert_eq!(is_expected(peer, 1000, Some(folder_owner), named), expected, "{peer} {folder_owner} {named:?}");
        };
        check(0, 0, None, true);
        check(1000, 0, None, true);
        check(999, 999, None, true);
        check(999, 0, None, false);
        check(999, 0, Some(999), true);
        check(0, 0, Some(999), false);
        assert!(!is_expected(999, 1000, None, None), "a folder that cannot be seen has no owner");
    }
}
