//! Options -> client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};
use zeroize::Zeroizing;

use super::call::Client;
use super::{Address, Identity, Options, Proxy, Tls};
use crate::words::chain;

impl Options {
    /// Reads the certificates that it names and makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// A file cannot be read or holds something else, or the address, server name and proxy do not go together.
    pub fn build(&self) -> Result<Client, BuildError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("keyward/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect_timeout)
            // Calls are minutes apart: a kept connection would more often be dead (a suspend, a restart) than useful.
            .pool_max_idle_per_host(0);
        let (base, name) = match &self.address {
            Address::Unix(path) => {
                builder = builder.no_proxy().unix_socket(path.as_path());
                (UNIX_BASE.clone(), format!("unix socket {}", path.display()))
            }
            Address::Url(url) => {
                check_url(url, &self.proxy)?;
                let mut base = url.clone();
                builder = match (&self.proxy, &self.tls.server_name) {
                    (Proxy::Through(_), Some(_)) => return Err(BuildError::ServerNameAndProxy),
                    (_, Some(server_name)) => {
                        let resolver = Renamed::new(url)?;
                        base.set_host(Some(server_name))
                            .map_err(|_| BuildError::ServerName { name: server_name.clone() })?;
                        builder.no_proxy().dns_resolver(Arc::new(resolver))
                    }
                    (Proxy::Environment, None) if is_loopback(url) => builder.no_proxy(),
                    (Proxy::Environment, None) => builder,
                    (Proxy::Direct, None) => builder.no_proxy(),
                    (Proxy::Through(proxy), None) => {
                        let known = matches!(proxy.scheme(), "http" | "https");
                        let proxy = known.then(|| reqwest::Proxy::all(proxy.as_str())).and_then(Result::ok);
                        builder.proxy(proxy.ok_or(BuildError::Proxy)?)
                    }
                };
                (base, origin(url))
            }
        };
        builder = trust(builder, &self.tls)?;
        if let Some(identity) = &self.tls.identity {
            builder = builder.identity(client_identity(identity)?);
        }
        let http = builder.build().map_err(|error| BuildError::Client { cause: chain(&error.without_url()) })?;
        Ok(Client::new(http, base, name, self.answer_timeout.max(self.connect_timeout)))
    }
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A CA file or folder without a certificate in it.
    #[error("{} holds no PEM certificate", path.display())]
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// A text that is to hold a certificate and has none in it.
    #[error("the authorities to trust hold no PEM certificate")]
    NoPem,
    /// The client certificate and key make no identity.
    #[error(
        "{} and {} are no PEM certificate and private key that belong together",
        certificate.display(),
        key.display()
    )]
    Identity {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Plain HTTP to another machine, or an unknown scheme.
    #[error("{address} would send secrets in the clear; take https, or http on loopback without a proxy")]
    Plain {
        /// The address without user, path and query.
        address: String,
    },
    /// An address with a user, a query or a fragment, or without a host.
    #[error("{address} may hold scheme, host, port and path alone")]
    Url {
        /// The address without user, path and query.
        address: String,
    },
    /// No host name.
    #[error("the server name {name:?} is no host name")]
    ServerName {
        /// What was given.
        name: String,
    },
    /// A proxy connects by name, so the name to verify cannot be another.
    #[error("a server name and a proxy do not go together; connect directly, or drop the server name")]
    ServerNameAndProxy,
    /// The proxy's URL is not one.
    #[error("the proxy is no http or https URL")]
    Proxy,
    /// The TLS library refused what it was given.
    #[error("cannot set up TLS: {cause}")]
    Client {
        /// What it said.
        cause: String,
    },
}

#[expect(clippy::expect_used, reason = "a constant that parses")]
static UNIX_BASE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://localhost/").expect("a constant that parses"));

/// Scheme, host and port of a URL, for messages.
pub(super) fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or("?"))
}

/// Whether a URL's host is this machine's loopback.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn check_url(url: &Url, proxy: &Proxy) -> Result<(), BuildError> {
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() || url.host().is_none() {
        return Err(BuildError::Url { address: origin(url) });
    }
    let plain = url.scheme() == "http" && is_loopback(url) && !matches!(proxy, Proxy::Through(_));
    if url.scheme() == "https" || plain { Ok(()) } else { Err(BuildError::Plain { address: origin(url) }) }
}

fn trust(builder: reqwest::ClientBuilder, tls: &Tls) -> Result<reqwest::ClientBuilder, BuildError> {
    let mut files: Vec<PathBuf> = tls.ca_file.iter().cloned().collect();
    if let Some(folder) = &tls.ca_dir {
        let before = files.len();
        let found = certificate_files(folder);
        files.extend(found.map_err(|source| BuildError::Read { path: folder.clone(), source })?);
        if files.len() == before {
            return Err(BuildError::NoCertificate { path: folder.clone() });
        }
    }
    let mut certificates = Vec::new();
    if let Some(pem) = &tls.ca_pem {
        match reqwest::Certificate::from_pem_bundle(pem.as_bytes()) {
            Ok(found) if !found.is_empty() => certificates.extend(found),
            _ => return Err(BuildError::NoPem),
        }
    }
    if files.is_empty() && certificates.is_empty() {
        return Ok(builder);
    }
    for path in files {
        let pem = read(&path)?;
        match reqwest::Certificate::from_pem_bundle(&pem) {
            Ok(found) if !found.is_empty() => certificates.extend(found),
            _ => return Err(BuildError::NoCertificate { path }),
        }
    }
    Ok(builder.tls_certs_only(certificates))
}

/// The files of certificates in a folder, `*.pem` and `*.crt`, by name.
///
/// # Errors
/// It cannot be read.
pub fn certificate_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pem" || extension == "crt") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn client_identity(identity: &Identity) -> Result<reqwest::Identity, BuildError> {
    let mut pem = Zeroizing::new(read(&identity.certificate)?);
    let key = Zeroizing::new(read(&identity.key)?);
    pem.push(b'\n');
    pem.extend_from_slice(&key);
    // The library's own text could quote the file; it is not passed on.
    reqwest::Identity::from_pem(&pem)
        .map_err(|_| BuildError::Identity { certificate: identity.certificate.clone(), key: identity.key.clone() })
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    std::fs::read(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })
}

/// Answers every look-up with the addresses of one host, whatever name is verified.
#[derive(Debug)]
pub(crate) struct Renamed {
    host: String,
    port: u16,
}

impl Renamed {
    /// Answers with the addresses of this URL's host.
    pub(crate) fn new(url: &Url) -> Result<Self, BuildError> {
        let fail = || BuildError::Url { address: origin(url) };
        let host = match url.host().ok_or_else(fail)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self { host, port: url.port_or_known_default().ok_or_else(fail)? })
    }
}

impl Resolve for Renamed {
    fn resolve(&self, _verified: Name) -> Resolving {
        let (host, port) = (self.host.clone(), self.port);
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
