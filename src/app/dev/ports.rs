//! The ports of `keyward dev`, reserved from the moment they are printed.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// Reserved loopback addresses; dropping it releases them.
///
/// Each is bound by a socket that does not listen. The system gives a bound port to no other socket, and lets a server
/// bind to it when it names the port, as both have `SO_REUSEADDR` (`socket(7)`).
#[derive(Debug)]
pub(super) struct Ports(Vec<(SocketAddr, TcpSocket)>);

impl Ports {
    const COUNT: u16 = 12;

    /// Reserves consecutive ports from `first`, or free ones. Must be called inside a runtime.
    pub(super) fn choose(first: Option<u16>) -> anyhow::Result<Self> {
        let Some(first) = first else {
            let reserved: std::io::Result<Vec<_>> = (0..Self::COUNT).map(|_| reserve(0)).collect();
            return Ok(Self(reserved.context("cannot find free ports on loopback")?));
        };
        check_first_port(first)?;
        let taken = |port| move || format!("--first-port {first}: cannot bind 127.0.0.1:{port}");
        let reserve = |port| reserve(port).with_context(taken(port));
        Ok(Self((first..first + Self::COUNT).map(reserve).collect::<anyhow::Result<_>>()?))
    }

    pub(super) fn get(&self, index: usize) -> SocketAddr {
        self.0.get(index).map_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |(address, _)| *address)
    }
}

/// Checks that as many ports as are needed follow.
///
/// # Errors
/// They do not fit.
pub(crate) fn check_first_port(first: u16) -> anyhow::Result<()> {
    anyhow::ensure!(
        first.checked_add(Ports::COUNT - 1).is_some(),
        "--first-port {first}: twelve ports in a row do not fit below 65536"
    );
    Ok(())
}

fn reserve(port: u16) -> std::io::Result<(SocketAddr, TcpSocket)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok((socket.local_addr()?, socket))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_is_only_given_to_a_server_that_names_it() {
        let ports = Ports::choose(None).unwrap();
        let named: Vec<u16> = (0..usize::from(Ports::COUNT)).map(|index| ports.get(index).port()).collect();
        // Random free ports do not overlap with a named one.
        let mut others = Vec::new();
        while let Ok(other) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
            assert!(!named.contains(&other.local_addr().unwrap().port()));
            others.push(other);
            if others.len() == 400 {
                break;
            }
        }
        for index in 0..named.len() {
            let server = TcpListener::bind(ports.get(index)).unwrap();
            drop(Ports::choose(Some(ports.get(index).port())).unwrap_err());
            drop(server);
        }
    }
}
