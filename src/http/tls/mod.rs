//! TLS for every client and server: certificate files are read and checked in one place, and followed when they change.

pub mod der;
mod pem;
mod listed;
mod config;
mod reload;
mod validity;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::path::PathBuf;

pub(crate) use config::plain_client_config;
pub use config::{client_config, client_config_of, is_pair, verify_pair};
pub use pem::CertificateError;
pub use pem::{PemBlock, certificate_files, certificates, pem_blocks};
pub(crate) use reload::ClientTls;
pub use reload::{FileBacked, ServerTls};
pub use validity::{CertificateFacts, Expiry, expiry};

/// The CA certificates to trust, and the client's own certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file of certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificates to trust instead of the system's, in PEM.
    pub ca_pem: Option<String>,
    /// Folder of such files, `*.pem` and `*.crt`.
    pub ca_dir: Option<PathBuf>,
    /// A client certificate.
    pub identity: Option<ClientCertificate>,
    /// The name to expect in the server's certificate, instead of the address's host. It is also sent as SNI and
    /// `Host`, and goes with a direct connection only: a proxy would look the name up itself.
    pub server_name: Option<String>,
    /// True if plain `http://` is allowed to another machine too, not only on loopback.
    pub allow_http: bool,
}

/// A client certificate and its key, both PEM files. Files that change are read again for the next connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, its chain after it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The files may not be there yet: until then connections go without it.
    pub is_awaited: bool,
}

/// A server's certificate and its key, both PEM files. Files that change are read again for the next connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// The certificate, its chain after it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The files may not be there yet: until then no connection gets beyond its handshake.
    pub is_awaited: bool,
    /// Authorities whose certificates clients must have; `None` if clients need none.
    pub client_ca: Option<ClientAuthorities>,
}

/// Authorities of clients, in a PEM file that is read again when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthorities {
    /// The file.
    pub file: PathBuf,
    /// It may not be there yet: until then no connection gets beyond its handshake.
    pub is_awaited: bool,
}
