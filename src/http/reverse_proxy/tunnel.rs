//! Connects to an upstream through an HTTP proxy with `CONNECT`.

use std::io;
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

use super::connect::connect_host;
use crate::tls::ClientTls;

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
