//! HTTP clients: time-outs, trust, proxy; never a redirect.

mod unreached;
mod build;
mod call;
pub mod sanitize;

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub(crate) use build::FixedResolver;
pub use build::{BuildError, is_loopback};
pub use call::{Client, ClientResponse, MAX_RESPONSE, StreamingResponse, TransportError, read_body};

pub use crate::http::tls::{ClientCertificate, TlsOptions};

/// What a client for one server is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// Where the server is.
    pub address: ServerAddress,
    /// Whom to trust, and who we are, on TLS.
    pub tls: TlsOptions,
    /// Which way requests go.
    pub proxy: ProxyMode,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Time for a whole call: connecting, sending, and the answer to its last byte.
    pub response_timeout: Duration,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// An `https` URL, or an `http` one on loopback. Its path is put before every request's path.
    Url(Url),
    /// A unix socket that speaks plain HTTP.
    Unix(PathBuf),
}

/// Which way requests go.
#[derive(Clone, PartialEq, Eq)]
pub enum ProxyMode {
    /// As `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say; not for loopback, a unix socket or a given server name.
    Environment,
    /// Straight to the server.
    Direct,
    /// Through this proxy.
    Through(Url),
}

impl std::fmt::Debug for ProxyMode {
    /// The proxy's host alone: its URL may carry a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::Direct => f.write_str("Direct"),
            Self::Through(url) => f.debug_tuple("Through").field(&url.host_str()).finish(),
        }
    }
}
