//! Builds clients from their options.

use std::sync::Arc;

use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use url::{Host, Url};

use super::call::Client;
use super::environment_proxy::EnvironmentProxies;
use super::reqwest_resolver::{ConnectionRoute, Resolver};
use super::{ClientOptions, ProxyMode, ServerAddress};
use crate::tls::{CertificateError, FileBacked, TlsOptions, client_config, plain_client_config};

impl ClientOptions {
    /// Reads the certificate files and builds a client that follows their changes. Sends nothing yet.
    pub fn build(&self) -> Result<Client, BuildError> {
        let base = self.validate()?;
        let resolver = Resolver::default();
        let route = ConnectionRoute::new(self, resolver.clone());
        let options = self.clone();
        let build = self.tls.follow(move |tls| options.build_http(tls, &resolver));
        let http = FileBacked::new(self.tls.files(), build)?;
        Ok(Client::new(http, route, base, self.server(), self.response_timeout.max(self.connect_timeout)))
    }

    /// Validates address, server name and proxy, and returns the URL that paths are appended to.
    fn validate(&self) -> Result<Url, BuildError> {
        let ServerAddress::Url(url) = &self.address else { return Ok(UNIX_BASE.clone()) };
        check_url(url, &self.proxy, self.tls.allow_http)?;
        let mut base = url.clone();
        if let Some(name) = &self.tls.server_name {
            base.set_host(Some(name)).map_err(|_| BuildError::ServerName { name: name.clone() })?;
        }
        match &self.proxy {
            ProxyMode::Through(_) if self.tls.server_name.is_some() => Err(BuildError::ServerNameAndProxy),
            ProxyMode::Through(proxy) if !matches!(proxy.scheme(), "http" | "https") => Err(BuildError::Proxy),
            _ => Ok(base),
        }
    }

    /// Returns the server for messages: its origin or its socket's path, without path, user or query.
    pub fn server(&self) -> String {
        match &self.address {
            ServerAddress::Unix(path) => format!("unix socket {}", path.display()),
            ServerAddress::Url(url) => origin(url),
        }
    }

    /// Selects the proxy to `url`.
    fn select_proxy(&self, url: &Url) -> Option<Url> {
        match &self.proxy {
            ProxyMode::Direct => None,
            ProxyMode::Environment if self.tls.server_name.is_some() || is_loopback(url) => None,
            ProxyMode::Environment => EnvironmentProxies::from_env().proxy_for(url).cloned(),
            ProxyMode::Through(proxy) => Some(proxy.clone()),
        }
    }

    /// Returns the proxy to `url`, with its credentials.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<Intercept> {
        let proxy = self.select_proxy(url)?;
        Matcher::builder().all(proxy.as_str()).build().intercept(&url.as_str().parse().ok()?)
    }

    /// Returns host and port of the proxy to `url`.
    pub fn proxy_endpoint(&self, url: &Url) -> Option<(String, u16)> {
        let proxy = self.proxy_for(url)?;
        let usual = if proxy.uri().scheme_str() == Some("https") { 443 } else { 80 };
        Some((proxy.uri().host()?.to_owned(), proxy.uri().port_u16().unwrap_or(usual)))
    }

    fn build_http(&self, files: &TlsOptions, resolver: &Resolver) -> Result<reqwest::Client, BuildError> {
        let mut builder = reqwest::Client::builder()
            // reqwest would send the token and the body of a login on to another host: it removes five headers by name only.
            .redirect(reqwest::redirect::Policy::none())
            // Every attempt counts in the request budget, which the callers keep.
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
                if url.scheme() == "https" {
                    tls = Some(client_config(files)?);
                }
                let resolver = match &self.tls.server_name {
                    // The verified name may differ from the host.
                    Some(_) => {
                        let host = url.host().ok_or_else(|| BuildError::Url { address: origin(url) })?;
                        resolver.clone().with_host(&host)
                    }
                    None => resolver.clone(),
                };
                builder = builder.dns_resolver(Arc::new(resolver));
                match self.select_proxy(url) {
                    None => builder.no_proxy(),
                    Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy).map_err(|_| BuildError::Proxy)?),
                }
            }
        };
        let tls = match tls {
            Some(tls) => tls,
            None => plain_client_config(files)?,
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

impl BuildError {
    /// Returns the code for operators.
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Certificate(_) => Some(ErrorCode::CertificateFile),
            _ => None,
        }
    }
}

#[expect(clippy::expect_used, reason = "a constant that parses")]
static UNIX_BASE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://localhost/").expect("a constant that parses"));

/// Formats scheme, host and port of a URL for messages.
fn origin(url: &Url) -> String {
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

fn check_url(url: &Url, proxy: &ProxyMode, allow_http: bool) -> Result<(), BuildError> {
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() || url.host().is_none() {
        return Err(BuildError::Url { address: origin(url) });
    }
    let plain = url.scheme() == "http" && (allow_http || is_loopback(url)) && !matches!(proxy, ProxyMode::Through(_));
    if url.scheme() == "https" || plain { Ok(()) } else { Err(BuildError::Plain { address: origin(url) }) }
}
