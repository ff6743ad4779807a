//! Resolves the names of servers and proxies, and records the addresses of a failed connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use super::{ClientOptions, ServerAddress};
use crate::resolution::resolve;

/// Resolves names as the system does. Clones share the last result.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    /// Host to resolve instead of every name.
    host: Option<String>,
    last: Arc<Mutex<Vec<IpAddr>>>,
}

impl Resolver {
    /// Returns the resolver with the addresses of `host` for every name, so that the verified name can differ.
    #[must_use]
    pub fn with_host(self, host: &Host<&str>) -> Self {
        let host = match host {
            Host::Domain(name) => (*name).to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Self { host: Some(host), ..self }
    }

    fn remember(&self, addresses: Vec<IpAddr>) {
        *self.last.lock() = addresses;
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            resolver.remember(Vec::new());
            let host = resolver.host.as_deref().unwrap_or(name.as_str());
            // Port 0 is replaced by the URL's.
            let addresses = resolve(host).await?;
            resolver.remember(addresses.clone());
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Endpoint of a client's connections: the server, or the proxy to it.
#[derive(Debug, Clone)]
pub(super) struct ConnectionRoute {
    /// Host and port; `None` for a unix socket.
    endpoint: Option<(String, u16)>,
    resolver: Resolver,
}

impl ConnectionRoute {
    pub(super) fn new(options: &ClientOptions, resolver: Resolver) -> Self {
        let ServerAddress::Url(url) = &options.address else { return Self { endpoint: None, resolver } };
        let server = || Some((url.host_str()?.to_owned(), url.port_or_known_default()?));
        Self { endpoint: options.proxy_endpoint(url).or_else(server), resolver }
    }

    /// Returns the addresses that the last connection was tried at; none if the name could not be resolved.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let Some((host, port)) = &self.endpoint else { return Vec::new() };
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return vec![SocketAddr::new(address, *port)];
        }
        let last = self.resolver.last.lock();
        last.iter().map(|address| SocketAddr::new(*address, *port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;

    use super::*;
    use crate::client::{ProxyMode, TlsOptions};

    #[tokio::test]
    async fn the_address_that_was_not_reached_is_named() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failed = async |url: &str, proxy: ProxyMode| {
            let limit = Duration::from_secs(10);
            let tls = TlsOptions::default();
            let address = ServerAddress::Url(url.parse().unwrap());
            let options = ClientOptions { address, tls, proxy, connect_timeout: limit, response_timeout: limit };
            let client = options.build().unwrap();
            client.send(client.request(Method::GET, "")).await.unwrap_err().to_string()
        };
        let proxy = ProxyMode::Through(format!("http://{free}").parse().unwrap());
        let error = failed("https://server.invalid", proxy).await;
        assert!(error.starts_with(&format!("cannot connect to https://server.invalid: {free}: ")), "{error}");
        let error = failed(&format!("http://localhost:{}", free.port()), ProxyMode::Direct).await;
        assert!(error.contains(&format!("127.0.0.1:{}", free.port())), "{error}");
        let error = failed(&format!("http://{free}"), ProxyMode::Direct).await;
        assert_eq!(error.matches(&free.to_string()).count(), 1, "it is the server's own: {error}");
        let error = failed("https://server.invalid", ProxyMode::Direct).await;
        assert!(!error.contains("server.invalid:443") && !error.contains("127.0.0.1"), "{error}");
    }
}
