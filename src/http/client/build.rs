//! Builds clients from their options.

use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::call::Client;
use super::{ClientOptions, ProxyMode, ServerAddress};
use crate::error_chain::format_chain;
use crate::http::tls::{CertificateError, FollowedFiles, client_config, plain_client_config};

impl ClientOptions {
    /// Reads the certificate files and builds a client that follows their changes. Sends nothing yet.
    ///
    /// # Errors
    /// A file cannot be read or holds something else, or the address, server name and proxy do not go together.
    pub fn build(&self) -> Result<Client, BuildError> {
        let (base, name) = match &self.address {
            ServerAddress::Unix(path) => (UNIX_BASE.clone(), format!("unix socket {}", path.display())),
            ServerAddress::Url(url) => {
                let mut base = url.clone();
                if let Some(server_name) = &self.tls.server_name {
                    base.set_host(Some(server_name))
                        .map_err(|_| BuildError::ServerName { name: server_name.clone() })?;
                }
                (base, origin(url))
            }
        };
        let options = self.clone();
        let http = FollowedFiles::new(self.tls.files(), move || options.build_http())?;
        Ok(Client::new(http, base, name, self.response_timeout.max(self.connect_timeout)))
    }

    fn build_http(&self) -> Result<reqwest::Client, BuildError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("keyward/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect_timeout)
            // No idle connections: calls are minutes apart, so a kept connection would more often be dead (suspend,
            // restart) than useful.
            .pool_max_idle_per_host(0);
        let mut tls = None;
        builder = match &self.address {
            ServerAddress::Unix(path) => builder.no_proxy().unix_socket(path.as_path()),
            ServerAddress::Url(url) => {
                check_url(url, &self.proxy)?;
                if url.scheme() == "https" {
                    tls = Some(client_config(&self.tls)?);
                }
                match (&self.proxy, &self.tls.server_name) {
                    (ProxyMode::Through(_), Some(_)) => return Err(BuildError::ServerNameAndProxy),
                    (_, Some(_)) => builder.no_proxy().dns_resolver(Arc::new(FixedResolver::new(url)?)),
                    (ProxyMode::Environment, None) if is_loopback(url) => builder.no_proxy(),
                    (ProxyMode::Environment, None) => builder,
                    (ProxyMode::Direct, None) => builder.no_proxy(),
                    (ProxyMode::Through(proxy), None) => {
                        let known = matches!(proxy.scheme(), "http" | "https");
                        let proxy = known.then(|| reqwest::Proxy::all(proxy.as_str())).and_then(Result::ok);
                        builder.proxy(proxy.ok_or(BuildError::Proxy)?)
                    }
                }
            }
        };
        let tls = match tls {
            Some(tls) => tls,
            None => plain_client_config(&self.tls)?,
        };
        let built = builder.tls_backend_preconfigured(tls).build();
        built.map_err(|error| BuildError::Client { cause: format_chain(&error.without_url()) })
    }
}

/// Reason why a client was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A certificate file cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Plain HTTP to another machine, or an unknown scheme.
    #[error("{address} would send secrets in the clear; use https, or http on loopback without a proxy")]
    Plain {
        /// The address without user, path and query.
        address: String,
    },
    /// An address with a user, a query or a fragment, or without a host.
    #[error("{address} may only have scheme, host, port and path")]
    Url {
        /// The address without user, path and query.
        address: String,
    },
    /// The server name is not a host name.
    #[error("the server name {name:?} is not a host name")]
    ServerName {
        /// The given name.
        name: String,
    },
    /// A proxy connects by name, so the name to verify cannot be another.
    #[error("a server name cannot be combined with a proxy; connect directly or remove the server name")]
    ServerNameAndProxy,
    /// The proxy's URL is neither http nor https.
    #[error("the proxy is not an http or https URL")]
    Proxy,
    /// The TLS library rejected the settings.
    #[error("cannot set up TLS: {cause}")]
    Client {
        /// The library's message.
        cause: String,
    },
}

#[expect(clippy::expect_used, reason = "a constant that parses")]
static UNIX_BASE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://localhost/").expect("a constant that parses"));

/// Formats scheme, host and port of a URL for messages.
pub(super) fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or("?"))
}

/// Returns true if a URL's host is a loopback address or `localhost`.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn check_url(url: &Url, proxy: &ProxyMode) -> Result<(), BuildError> {
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() || url.host().is_none() {
        return Err(BuildError::Url { address: origin(url) });
    }
    let plain = url.scheme() == "http" && is_loopback(url) && !matches!(proxy, ProxyMode::Through(_));
    if url.scheme() == "https" || plain { Ok(()) } else { Err(BuildError::Plain { address: origin(url) }) }
}

/// Resolver that returns the addresses of one host for every name, so that the verified name can differ from it.
#[derive(Debug)]
pub(crate) struct FixedResolver {
    host: String,
    port: u16,
}

impl FixedResolver {
    /// Creates a resolver for this URL's host.
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

impl Resolve for FixedResolver {
    fn resolve(&self, _verified: Name) -> Resolving {
        let (host, port) = (self.host.clone(), self.port);
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
