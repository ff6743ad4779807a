//! The ports of `keyward dev`, reserved from the moment they are printed.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use keyward_emulators::ReservedPort;

/// Reserved loopback addresses; dropping it releases them.
#[derive(Debug)]
pub(super) struct Ports(Vec<ReservedPort>);

impl Ports {
    const COUNT: u16 = 12;

    /// Reserves consecutive ports from `first`, or free ones. Must be called inside a runtime.
    pub(super) fn choose(first: Option<u16>) -> anyhow::Result<Self> {
        let Some(first) = first else {
            let reserved: std::io::Result<Vec<_>> = (0..Self::COUNT).map(|_| reserve(0)).collect();
            return Ok(Self(reserved.context("cannot find free ports on loopback")?));
        };
        check_first_port(first)?;
        let describe_failure = |port| move || format!("--first-port {first}: cannot bind 127.0.0.1:{port}");
        let reserve = |port| reserve(port).with_context(describe_failure(port));
        Ok(Self((first..first + Self::COUNT).map(reserve).collect::<anyhow::Result<_>>()?))
    }

    pub(super) fn get(&self, index: usize) -> SocketAddr {
        self.0.get(index).map_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ReservedPort::address)
    }
}

/// Checks that as many ports as are needed follow.
pub fn check_first_port(first: u16) -> anyhow::Result<()> {
    anyhow::ensure!(
        first.checked_add(Ports::COUNT - 1).is_some(),
        "--first-port {first}: twelve ports in a row do not fit below 65536"
    );
    Ok(())
}

fn reserve(port: u16) -> std::io::Result<ReservedPort> {
    ReservedPort::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}
