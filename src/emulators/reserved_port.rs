//! A port that no other program gets by chance, whether a server listens there or not.

use std::io;
use std::net::SocketAddr;

use keyward_http::server::{Endpoint, Listener};
use tokio::net::TcpSocket;

/// An address that stays bound until this is dropped.
///
/// It is bound by a socket that does not listen. The system gives a bound port to no other socket, and lets a server
/// bind to it when it names the port, as both have `SO_REUSEADDR` (`socket(7)`).
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl ReservedPort {
    /// Reserves the address; port 0 picks a free one. Must be called inside a runtime, before a server listens there.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { address: socket.local_addr()?, _socket: socket })
    }

    /// Reserves the address, and binds a first listener there.
    pub(super) fn bind_listening(address: SocketAddr) -> io::Result<(Listener, Self)> {
        let port = Self::bind(address)?;
        Ok((port.listen()?, port))
    }

    /// Returns the reserved address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Binds a listener at the address.
    pub(super) fn listen(&self) -> io::Result<Listener> {
        Listener::bind(&Endpoint::Tcp(self.address))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_is_only_given_to_a_server_that_names_it_also_after_that_server_closed() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let reserved: Vec<_> = (0..12).map(|_| ReservedPort::bind(any).unwrap()).collect();
        drop(TcpListener::bind(reserved[0].address()).unwrap());
        // Random free ports do not overlap with a reserved one.
        let mut others = Vec::new();
        while let Ok(other) = TcpListener::bind(any) {
            assert!(reserved.iter().all(|port| other.local_addr().unwrap() != port.address()));
            others.push(other);
            if others.len() == 400 {
                break;
            }
        }
        for port in &reserved {
            let server = TcpListener::bind(port.address()).unwrap();
            drop(ReservedPort::bind(port.address()).unwrap_err());
            drop(server);
        }
    }
}
