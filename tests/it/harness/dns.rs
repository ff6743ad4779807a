//! A DNS server of a test, in its own network and only for its own processes.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;

/// Response to every question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DnsAnswer {
    /// These addresses, with a TTL of zero.
    Addresses(Vec<Ipv4Addr>),
    /// There is no such name.
    NoName,
    /// The server fails.
    Failure,
    /// No response.
    Silence,
}

/// A server on loopback. It needs separate network and mount namespaces, and ends with them.
pub(crate) struct Dns(Arc<Mutex<DnsAnswer>>);

impl Dns {
    /// A server at 127.0.0.1 that the system's resolver uses.
    pub(crate) fn start(folder: &Path, response: DnsAnswer) -> Self {
        let file = folder.join("resolv.conf");
        std::fs::write(&file, resolver_settings(Ipv4Addr::LOCALHOST)).unwrap();
        mount_at(&file, "/etc/resolv.conf");
        Self::at(Ipv4Addr::LOCALHOST, response)
    }

    /// A server that the system's resolver uses once `/etc/resolv.conf` names it.
    pub(crate) fn at(address: Ipv4Addr, answer: DnsAnswer) -> Self {
        let socket = UdpSocket::bind((address, 53)).unwrap();
        let answer = Arc::new(Mutex::new(answer));
        let current = Arc::clone(&answer);
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                let answer = current.lock().clone();
                if let Some(response) = respond(&question[..length], &answer) {
                    let _ = socket.send_to(&response, from);
                }
            }
        });
        Self(answer)
    }

    pub(crate) fn answer(&self, response: DnsAnswer) {
        *self.0.lock() = response;
    }
}

/// Content of `/etc/resolv.conf` with one server.
pub(crate) fn resolver_settings(server: Ipv4Addr) -> String {
    format!("nameserver {server}\noptions timeout:1 attempts:1\n")
}

/// Mounts a file or folder over another, in this mount namespace.
pub(crate) fn mount_at(what: &Path, place: &str) {
    let status = Command::new("mount").arg("--bind").arg(what).arg(place).status().unwrap();
    assert!(status.success(), "mount --bind {} {place}", what.display());
}

/// Response to a message with one question (RFC 1035, section 4).
fn respond(question: &[u8], answer: &DnsAnswer) -> Option<Vec<u8>> {
    let name = question.get(12..)?.iter().position(|byte| *byte == 0)?;
    let end = 12 + name + 5;
    let is_ipv4 = question.get(end - 4..end - 2)? == [0, 1];
    let none = Vec::new();
    let (code, addresses) = match answer {
        DnsAnswer::Silence => return None,
        DnsAnswer::Failure => (2, &none),
        DnsAnswer::NoName => (3, &none),
        DnsAnswer::Addresses(addresses) => (0, if is_ipv4 { addresses } else { &none }),
    };
    let count = u8::try_from(addresses.len()).ok()?;
    let mut response = question.get(..end)?.to_vec();
    response[2..12].copy_from_slice(&[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    for address in addresses {
        // A pointer to the name, type A, class IN, no caching, four bytes.
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        response.extend(address.octets());
    }
    Some(response)
}
