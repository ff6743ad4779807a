//! Address to which the browser returns.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use url::{Host, Url};

/// Address on this machine to which the browser returns: it goes to the provider as it was written.
#[derive(Debug, Clone)]
pub(super) struct RedirectUri {
    text: String,
    url: Url,
}

impl RedirectUri {
    /// That of Consul's command line, so that one registration serves both.
    pub(super) const DEFAULT: &str = "http://localhost:8550/oidc/callback";

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the path, as requests have it.
    pub(super) fn path(&self) -> String {
        self.url.path().to_owned()
    }

    /// Returns another page of the same address.
    pub(super) fn neighbour(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(path);
        url
    }

    /// Returns the addresses to listen at, the first of which must be free. `localhost` has two: whoever else had one of them
    /// would get the browser.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let port = self.url.port_or_known_default().unwrap_or(80);
        let hosts: &[IpAddr] = match self.url.host() {
            Some(Host::Ipv4(address)) => &[IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => &[IpAddr::V6(address)],
            Some(Host::Domain(_)) | None => &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)],
        };
        hosts.iter().map(|host| SocketAddr::new(*host, port)).collect()
    }
}

impl FromStr for RedirectUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = format!("expected an address on this machine, such as {}", Self::DEFAULT);
        let url = Url::parse(text).map_err(|_| expected.clone())?;
        let plain =
            url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
        if url.scheme() == "http" && plain && keyward_http::client::is_loopback(&url) {
            Ok(Self { text: text.to_owned(), url })
        } else {
            Err(expected)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_uri_is_on_this_machine() {
        let check = |text: &str, path: &str, addresses: &[&str]| {
            let uri: RedirectUri = text.parse().unwrap();
            assert_eq!((uri.as_str(), uri.path().as_str()), (text, path));
            let expected: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(uri.addresses(), expected, "{text}");
        };
        check(RedirectUri::DEFAULT, "/oidc/callback", &["127.0.0.1:8550", "[::1]:8550"]);
        check("http://127.0.0.1:9000/a%20b", "/a%20b", &["127.0.0.1:9000"]);
        check("http://[::1]", "/", &["[::1]:80"]);
        let uri: RedirectUri = "http://localhost:9000/a/b".parse().unwrap();
        assert_eq!(uri.neighbour("/start/1").as_str(), "http://localhost:9000/start/1");
        for text in [
            "",
            "localhost:8550",
            "https://localhost:8550/oidc/callback",
            "http://people.example:8550/oidc/callback",
            "http://0.0.0.0:8550/oidc/callback",
            "http://localhost:8550/oidc/callback?a=b",
            "http://localhost:8550/oidc/callback#a",
            "http://me@localhost:8550/oidc/callback",
        ] {
            assert!(text.parse::<RedirectUri>().is_err(), "{text}");
        }
    }
}
