//! HTTP clients with timeouts, trust settings and proxies. They never follow redirects.

mod environment_proxy;
mod build;
mod reqwest_resolver;
mod call;
pub mod sanitize;
mod websocket;

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub use build::{BuildError, is_loopback};
pub use call::{
    Client, ClientResponse, MAX_RESPONSE, StreamingResponse, TransportError, connection_error_code, read_body,
};
pub use environment_proxy::EnvironmentProxies;
pub use reqwest::RequestBuilder;
pub use reqwest_resolver::Resolver;
pub use websocket::{MAX_MESSAGE, ReceivedMessage, UpgradeResponse, WebSocket};

pub use crate::tls::{ClientCertificate, TlsOptions};

/// Options of a client for one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// Address of the server.
    pub address: ServerAddress,
    /// TLS: trusted CA certificates and the client certificate.
    pub tls: TlsOptions,
    /// Selects a proxy for requests.
    pub proxy: ProxyMode,
    /// Time limit for connecting, TLS included.
    pub connect_timeout: Duration,
    /// Time limit for a whole call: connecting, sending, and the response to its last byte.
    pub response_timeout: Duration,
}

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// An `https` URL, or an `http` one on loopback or with [`TlsOptions::allow_http`]. Its path is put before every request's path.
    Url(Url),
    /// A unix socket that speaks plain HTTP.
    Unix(PathBuf),
}

/// Selects a proxy for requests.
#[derive(Clone, PartialEq, Eq)]
pub enum ProxyMode {
    /// Uses `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` ([`EnvironmentProxies`]); not for loopback, a unix socket or a given
    /// server name.
    Environment,
    /// Connects directly.
    Direct,
    /// Uses this proxy.
    Through(Url),
}

impl std::fmt::Debug for ProxyMode {
    /// Prints the proxy's host only: its URL may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::Direct => f.write_str("Direct"),
            Self::Through(url) => f.debug_tuple("Through").field(&url.host_str()).finish(),
        }
    }
}
