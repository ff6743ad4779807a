//! The ports of `keyward dev`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context as _;

/// Loopback addresses that were free a moment ago.
#[derive(Debug)]
pub(super) struct Ports(Vec<u16>);

impl Ports {
    const COUNT: u16 = 11;

    /// Takes those in a row from `first` on, or free ones.
    pub(super) fn choose(first: Option<u16>) -> anyhow::Result<Self> {
        if let Some(first) = first {
            anyhow::ensure!(
                first.checked_add(Self::COUNT - 1).is_some(),
                "--first-port {first}: eleven ports in a row do not fit below 65536"
            );
            return Ok(Self((first..first + Self::COUNT).collect()));
        }
        let held: Vec<TcpListener> = (0..Self::COUNT)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<_, _>>()
            .context("cannot find free ports on loopback")?;
        let ports = held.iter().map(|listener| listener.local_addr().map(|address| address.port()));
        Ok(Self(ports.collect::<Result<_, _>>()?))
    }

    pub(super) fn get(&self, index: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.get(index).copied().unwrap_or_default()))
    }
}
