//! Connects to a host by one of its addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::resolution::resolve;

/// An address of a host that was not reached.
#[derive(Debug, thiserror::Error)]
#[error("{address}")]
struct UnreachedAddress {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// Connects to the first address of a host that accepts a connection. All of them share the time `limit`.
///
/// # Errors
/// The name has no address, or none was reached: the error names the last one.
pub(super) async fn connect_host(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let addresses = resolve(host).await?;
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses.into_iter().map(|address| SocketAddr::new(address, port)) {
        let source = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        let is_literal = address.ip().to_string() == host.trim_matches(['[', ']']);
        failure = if is_literal { source } else { io::Error::new(source.kind(), UnreachedAddress { address, source }) };
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use keyward_telemetry::error_chain::format_chain;

    use super::*;

    #[tokio::test]
    async fn the_address_that_was_not_reached_is_named_where_a_name_stands_for_it() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failed = async |host| connect_host(host, free.port(), Duration::from_secs(10)).await.unwrap_err();
        let error = format_chain(&failed("localhost").await);
        assert!(error.contains(&format!(":{}: Connection refused", free.port())), "{error}");
        assert!(error.starts_with("127.0.0.1:") || error.starts_with("[::1]:"), "{error}");
        assert!(format_chain(&failed("127.0.0.1").await).starts_with("Connection refused"));
    }
}
