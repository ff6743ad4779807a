//! Connects to an upstream: by one of its addresses, or through an HTTP proxy with `CONNECT`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request};
use http_body_util::Empty;
use hyper::client::conn::http1::handshake;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::resolution::resolve;
use crate::tls::ClientTls;

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

/// Proxy and target of a tunnel.
#[derive(Debug, Clone)]
pub struct Tunnel {
    /// Host and port of the proxy.
    pub(crate) proxy: (String, u16),
    /// TLS configuration of the connection to the proxy itself.
    pub(crate) tls: Option<(ClientTls, ServerName<'static>)>,
    /// Value of `Proxy-Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
    /// Host and port of the upstream, as `HOST:PORT`.
    pub(crate) authority: String,
}

/// Opens a tunnel: connects to the proxy within `limit`, and sends `CONNECT`.
pub(super) async fn connect_tunnel(tunnel: &Tunnel, limit: Duration) -> io::Result<TokioIo<Upgraded>> {
    let (host, port) = &tunnel.proxy;
    let stream = connect_host(host, *port, limit).await?;
    stream.set_nodelay(true)?;
    match &tunnel.tls {
        None => send_connect(tunnel, stream).await,
        Some((config, name)) => {
            let connector = tokio_rustls::TlsConnector::from(config.current());
            send_connect(tunnel, connector.connect(name.clone(), stream).await?).await
        }
    }
}

async fn send_connect<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    tunnel: &Tunnel,
    stream: I,
) -> io::Result<TokioIo<Upgraded>> {
    let (mut sender, connection) =
        handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut request = Request::builder().method(Method::CONNECT).uri(&tunnel.authority).header(HOST, &tunnel.authority);
    if let Some(authorization) = &tunnel.authorization {
        request = request.header(PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::new()).map_err(io::Error::other)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err(io::Error::other(format!("the proxy rejected CONNECT with HTTP {status}")));
        }
        hyper::upgrade::on(response).await.map(TokioIo::new).map_err(io::Error::other)
    };
    let mut exchange = std::pin::pin!(exchange);
    let mut connection = std::pin::pin!(connection.with_upgrades());
    tokio::select! {
        through = &mut exchange => through,
        // The connection ends once it has handed over the upgraded stream.
        _ = &mut connection => exchange.await,
    }
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
