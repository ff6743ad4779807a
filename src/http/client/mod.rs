//! HTTP clients: time-outs, trust, proxy; never a redirect.

mod unreached;
mod build;
mod call;
pub mod text;

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub(crate) use build::Renamed;
pub use build::{BuildError, certificate_files, is_loopback};
pub use call::{Answer, Client, Coming, MAX_ANSWER, TransportError, read_body};

/// What a client for one server is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the server is.
    pub address: Address,
    /// Whom to trust, and who we are, on TLS.
    pub tls: Tls,
    /// Which way requests go.
    pub proxy: Proxy,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Time for a whole call: connecting, sending, and the answer to its last byte.
    pub answer_timeout: Duration,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An `https` URL, or an `http` one on loopback. Its path is put before every request's path.
    Url(Url),
    /// A unix socket that speaks plain HTTP.
    Unix(PathBuf),
}

/// Whom to trust, and who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM file of certificates to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificates to trust in place of the system's, in PEM.
    pub ca_pem: Option<String>,
    /// Folder of such files, `*.pem` and `*.crt`.
    pub ca_dir: Option<PathBuf>,
    /// A client certificate.
    pub identity: Option<Identity>,
    /// The name to expect in the server's certificate, in place of the address's host. It is also sent as SNI and
    /// `Host`, and goes with a direct connection only: a proxy would look the name up itself.
    pub server_name: Option<String>,
}

/// A client certificate and its key, both PEM files; read at each build, so that a renewed one is taken on reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, its chain after it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Which way requests go.
#[derive(Clone, PartialEq, Eq)]
pub enum Proxy {
    /// As `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say; not for loopback, a unix socket or a given server name.
    Environment,
    /// Straight to the server.
    Direct,
    /// Through this proxy.
    Through(Url),
}

impl std::fmt::Debug for Proxy {
    /// The proxy's host alone: its URL may carry a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::Direct => f.write_str("Direct"),
            Self::Through(url) => f.debug_tuple("Through").field(&url.host_str()).finish(),
        }
    }
}
