//! Resolves the options of a client to the address, TLS and prefix of a forwarder.

use std::net::SocketAddr;

use http::HeaderValue;
use rustls::pki_types::ServerName;
use url::{Host, Url};

use super::{Tunnel, UpstreamAddress};
use crate::client::{ClientOptions, ServerAddress};
use crate::tls::{CertificateError, ClientTls};

/// Address, TLS, `Host` and path prefix of an upstream.
#[derive(Debug, Clone)]
pub struct UpstreamTarget {
    /// Address of the upstream.
    pub target: UpstreamAddress,
    /// TLS configuration and server name; `None` for plain HTTP.
    pub tls: Option<(ClientTls, ServerName<'static>)>,
    /// `Host` of requests.
    pub host: HeaderValue,
    /// Prefix of every path; empty, or with a leading and without a trailing slash.
    pub prefix: String,
}

impl UpstreamTarget {
    /// Resolves the same route as a client with these options takes: its CA certificates, certificate, server name and
    /// proxy. Reads files; does not connect.
    pub fn resolve(options: &ClientOptions) -> Result<Self, UpstreamTargetError> {
        let url = match &options.address {
            ServerAddress::Unix(path) => {
                let target = UpstreamAddress::Unix(path.clone());
                let host = HeaderValue::from_static("localhost");
                return Ok(Self { target, tls: None, host, prefix: String::new() });
            }
            ServerAddress::Url(url) => url,
        };
        let server_name = options.tls.server_name.clone();
        let (host, port) = host_and_port(url)?;
        let config = if url.scheme() == "https" { Some(ClientTls::new(&options.tls)?) } else { None };
        let tls = match &config {
            None => None,
            Some(config) => Some((config.clone(), name(server_name.as_deref().unwrap_or(&host))?)),
        };
        let authority = match (&server_name, url.port()) {
            (Some(name), Some(port)) => format!("{name}:{port}"),
            (Some(name), None) => name.clone(),
            (None, _) => url.authority().to_owned(),
        };
        let direct = match url.host() {
            Some(Host::Ipv4(address)) => UpstreamAddress::Tcp(SocketAddr::from((address, port))),
            Some(Host::Ipv6(address)) => UpstreamAddress::Tcp(SocketAddr::from((address, port))),
            _ => UpstreamAddress::Host(host, port),
        };
        let tunnel = || {
            let proxy = options.proxy_for(url)?;
            Some(tunnel(proxy.uri(), proxy.basic_auth().cloned(), url, port, config.as_ref()))
        };
        let target = match tunnel() {
            None => direct,
            Some(tunnel) => UpstreamAddress::Through(Box::new(tunnel?)),
        };
        let host = HeaderValue::from_str(&authority).map_err(|_| UpstreamTargetError::NoHost)?;
        Ok(Self { target, tls, host, prefix: url.path().trim_end_matches('/').to_owned() })
    }
}

fn tunnel(
    proxy: &http::Uri,
    authorization: Option<HeaderValue>,
    url: &Url,
    port: u16,
    config: Option<&ClientTls>,
) -> Result<Tunnel, UpstreamTargetError> {
    let host = proxy.host().ok_or(UpstreamTargetError::Proxy)?.to_owned();
    let (tls, usual) = match proxy.scheme_str() {
        Some("https") => (Some((config.ok_or(UpstreamTargetError::Proxy)?.clone(), name(&host)?)), 443),
        Some("http") | None => (None, 80),
        Some(_) => return Err(UpstreamTargetError::Proxy),
    };
    let proxy = (host, proxy.port_u16().unwrap_or(usual));
    let authority = format!("{}:{port}", url.host_str().unwrap_or_default());
    Ok(Tunnel { proxy, tls, authorization, authority })
}

fn host_and_port(url: &Url) -> Result<(String, u16), UpstreamTargetError> {
    let host = match url.host().ok_or(UpstreamTargetError::NoHost)? {
        Host::Domain(name) => name.to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    Ok((host, url.port_or_known_default().ok_or(UpstreamTargetError::NoHost)?))
}

fn name(host: &str) -> Result<ServerName<'static>, UpstreamTargetError> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).map_err(|_| UpstreamTargetError::NoHost)
}

/// Reason why an upstream cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamTargetError {
    /// The address has no host, or none that a certificate could name.
    #[error("the server's address has no usable host")]
    NoHost,
    /// The proxy's URL is neither http nor https.
    #[error("the proxy's URL is neither http nor https")]
    Proxy,
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] CertificateError),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::{ProxyMode, TlsOptions};

    #[test]
    fn an_upstream_target_matches_its_clients_route() {
        let check = |address: &str, server_name: Option<&str>, proxy: ProxyMode, expected: (&str, &str, &str)| {
            let tls = TlsOptions { server_name: server_name.map(str::to_owned), ..TlsOptions::default() };
            let connect_timeout = Duration::from_secs(1);
            let response_timeout = Duration::from_secs(1);
            let address = ServerAddress::Url(address.parse().unwrap());
            let reach =
                UpstreamTarget::resolve(&ClientOptions { address, tls, proxy, connect_timeout, response_timeout })
                    .unwrap();
            let target = match &reach.target {
                UpstreamAddress::Tcp(address) => address.to_string(),
                UpstreamAddress::Host(host, port) => format!("host {host} {port}"),
                UpstreamAddress::Unix(path) => path.display().to_string(),
                UpstreamAddress::Through(through) => {
                    format!("{}:{} to {}", through.proxy.0, through.proxy.1, through.authority)
                }
            };
            assert_eq!((target.as_str(), reach.host.to_str().unwrap(), reach.prefix.as_str()), expected);
        };
        let direct = || ProxyMode::Direct;
        check("http://127.0.0.1:8200", None, direct(), ("127.0.0.1:8200", "127.0.0.1:8200", ""));
        check("http://[::1]:8200/vault/", None, direct(), ("[::1]:8200", "[::1]:8200", "/vault"));
        check("https://a.example.com/", None, direct(), ("host a.example.com 443", "a.example.com", ""));
        check("https://10.0.0.1:8200", Some("a.example.com"), direct(), ("10.0.0.1:8200", "a.example.com:8200", ""));
        let proxy = ProxyMode::Through("http://proxy.example.com:3128".parse().unwrap());
        let expected = ("proxy.example.com:3128 to a.example.com:443", "a.example.com", "/b");
        check("https://a.example.com/b", None, proxy, expected);
    }
}
