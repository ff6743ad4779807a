//! Listening TCP sockets of this machine, and the processes that hold them: by `/proc/net/tcp`, `/proc/net/tcp6`, `/proc/PID/fd` and
//! `/proc/PID/exe` (`proc(5)`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListeningSocket {
    /// Address.
    pub address: SocketAddr,
    /// User of the process that opened it.
    pub uid: u32,
    /// Number of the socket, which the process's descriptors name.
    pub inode: u64,
}

/// Parses the table of one address family.
pub(crate) fn parse(table: &str) -> Vec<ListeningSocket> {
    table.lines().skip(1).filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<ListeningSocket> {
    let mut columns = line.split_whitespace();
    let local = columns.nth(1)?;
    let state = columns.nth(1)?;
    if state != LISTEN {
        return None;
    }
    // Queues, timer and retransmits stand between the state and the user; a timeout before the inode.
    let uid = columns.nth(3)?.parse().ok()?;
    let inode = columns.nth(1)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let address = match address.len() {
        // Each group of eight digits is a number in the machine's byte order.
        8 => IpAddr::V4(Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (index, group) in bytes.chunks_mut(4).enumerate() {
                let digits = address.get(index * 8..index * 8 + 8)?;
                group.copy_from_slice(&u32::from_str_radix(digits, 16).ok()?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(ListeningSocket { address: SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?), uid, inode })
}

const LISTEN: &str = "0A";

/// Finds the sockets that keep an address from being bound: the same port at the same or at every address.
pub(crate) fn holders(sockets: &[ListeningSocket], address: SocketAddr) -> Vec<ListeningSocket> {
    let conflicts = |bound: SocketAddr| {
        let bound_ip = bound.ip().to_canonical();
        let ip = address.ip().to_canonical();
        bound.port() == address.port() && (bound_ip == ip || bound_ip.is_unspecified() || ip.is_unspecified())
    };
    sockets.iter().copied().filter(|socket| conflicts(socket.address)).collect()
}

/// A process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Process id.
    pub id: u32,
    /// Name of its executable.
    pub program: String,
    /// True if the executable is keyward, by its name or as the one that runs here.
    pub is_keyward: bool,
}

/// Returns the process of that id; `None` if this user may not see its executable.
pub(crate) fn with_id(id: u32) -> Option<Process> {
    let executable = std::fs::read_link(format!("/proc/{id}/exe")).ok()?;
    let text = executable.to_str()?;
    // An upgrade replaces the executable of a running process.
    let executable = Path::new(text.strip_suffix(" (deleted)").unwrap_or(text));
    let program = executable.file_name()?.to_str()?.to_owned();
    let is_keyward = program == "keyward" || std::env::current_exe().is_ok_and(|own| own == executable);
    Some(Process { id, program, is_keyward })
}

/// Returns the processes that have one of these sockets open, as far as this user may see them.
pub(crate) fn with_sockets(inodes: &[u64]) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders = ids.filter(|id| inodes.iter().any(|inode| has_socket(*id, *inode) == Some(true)));
    holders.filter_map(with_id).collect()
}

/// Returns true if a process has a socket open; `None` if its descriptors may not be read.
pub(crate) fn has_socket(id: u32, inode: u64) -> Option<bool> {
    let link_target = format!("socket:[{inode}]");
    let entries = std::fs::read_dir(format!("/proc/{id}/fd")).ok()?;
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Some(links.into_iter().any(|link| link.to_str() == Some(&link_target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn listening_sockets_are_read_with_user_and_inode() {
        let v4 = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   997        0 4711 1 x\n   \
                  1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000   997        0 4712 1 x\n";
        let v6 = "header\n   0: 00000000000000000000000001000000:2260 00000000000000000000000000000000:0000 0A \
                  00000000:00000000 00:00000000 00000000     0        0 99 1 x\n";
        let expected = ListeningSocket { address: "127.0.0.1:8080".parse().unwrap(), uid: 997, inode: 4711 };
        assert_eq!(parse(v4), [expected]);
        assert_eq!(parse(v6)[0].address, "[::1]:8800".parse().unwrap());
        assert_eq!(holders(&parse(v4), "0.0.0.0:8080".parse().unwrap()), [expected]);
        assert!(holders(&parse(v4), "127.0.0.2:8080".parse().unwrap()).is_empty());
        assert!(parse("").is_empty() && parse("header\n broken").is_empty());
    }
}
