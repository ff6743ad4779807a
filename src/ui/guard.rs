//! Checks a browser's request before any page: only pages of this origin, and the address bar, may send one. Pure.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Version};
use keyward_http::guard::is_allowed_host;
use keyward_http::server::Peer;
use keyward_machine::secret_string::SecretString;

use super::form::MAX_FORM;

/// Options of the pages of one listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// Key that opens the pages of the agent and the gateway.
    pub key: SecretString,
    /// Names allowed in `Host` besides the listener's own address, and `localhost` on loopback.
    pub allowed_hosts: BTreeSet<String>,
    /// Address that the listener is bound to.
    pub address: SocketAddr,
    /// The listener serves TLS.
    pub tls: bool,
}

/// Longest target of a request in bytes.
const MAX_TARGET: usize = 4 * 1024;

/// Guard of one listener.
#[derive(Debug)]
pub(super) struct PageGuard {
    hosts: BTreeSet<String>,
    port: u16,
    scheme: &'static str,
    loopback_only: bool,
}

/// Reason why a request was rejected: a status, a label for metrics, and a message for the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRejection {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

impl PageGuard {
    pub(super) fn new(options: &Options) -> Self {
        let mut hosts: BTreeSet<String> = options.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let ip = options.address.ip();
        if !ip.is_unspecified() {
            hosts.insert(match options.address {
                SocketAddr::V4(address) => address.ip().to_string(),
                SocketAddr::V6(address) => format!("[{}]", address.ip()),
            });
        }
        if ip.is_loopback() {
            hosts.insert("localhost".to_owned());
        }
        let scheme = if options.tls { "https" } else { "http" };
        Self { hosts, port: options.address.port(), scheme, loopback_only: !options.tls }
    }

    /// Checks a request's head.
    pub(super) fn check<B>(&self, peer: &Peer, request: &Request<B>) -> Result<(), PageRejection> {
        let headers = request.headers();
        if self.loopback_only && matches!(peer, Peer::Tcp { address, .. } if !address.ip().is_loopback()) {
            return reject(StatusCode::FORBIDDEN, "peer", "only this machine may open these pages");
        }
        if request.version() != Version::HTTP_11 {
            return reject(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "version", "HTTP/1.1 is required");
        }
        if request.uri().path_and_query().is_some_and(|target| target.as_str().len() > MAX_TARGET) {
            return reject(StatusCode::URI_TOO_LONG, "uri", "the address is longer than 4096 bytes");
        }
        if headers.contains_key(UPGRADE) {
            return reject(StatusCode::BAD_REQUEST, "upgrade", "Upgrade is not served");
        }
        let host = self.check_host(request)?;
        check_relay(headers)?;
        self.check_origin(request.method(), headers, host)?;
        check_body(request.method(), headers)
    }

    /// Checks `Host`, and returns it.
    fn check_host<'a, B>(&self, request: &'a Request<B>) -> Result<&'a str, PageRejection> {
        let Some(host) = single(request.headers(), &HOST)? else {
            return reject(StatusCode::BAD_REQUEST, "host", "the Host header is missing");
        };
        let matches_uri =
            request.uri().authority().is_none_or(|authority| authority.as_str().eq_ignore_ascii_case(host));
        if !matches_uri || !is_allowed_host(host, &self.hosts, Some(self.port)) {
            let message = "host name not allowed; add it to allowed_hosts";
            return reject(StatusCode::MISDIRECTED_REQUEST, "host", message);
        }
        Ok(host)
    }

    /// Refuses requests that another site's page makes (Fetch Metadata; `Origin` by RFC 6454).
    fn check_origin(&self, method: &Method, headers: &HeaderMap, host: &str) -> Result<(), PageRejection> {
        let foreign = "another site's page sent this request; open the page by its own address";
        let site = single(headers, &HeaderName::from_static("sec-fetch-site"))?;
        if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
            return reject(StatusCode::FORBIDDEN, "origin", foreign);
        }
        match single(headers, &ORIGIN)? {
            Some(origin)
                if origin.strip_prefix(self.scheme).and_then(|rest| rest.strip_prefix("://")) == Some(host) =>
            {
                Ok(())
            }
            Some(_) => reject(StatusCode::FORBIDDEN, "origin", foreign),
            // Browsers send it with every POST (Fetch, "append a request Origin header").
            None if *method == Method::POST => reject(StatusCode::FORBIDDEN, "origin", "the Origin header is missing"),
            None => Ok(()),
        }
    }
}

fn check_relay(headers: &HeaderMap) -> Result<(), PageRejection> {
    let relayed = headers.keys().any(|name| {
        let name = name.as_str();
        matches!(name, "forwarded" | "via" | "x-real-ip")
            || name.starts_with("x-forwarded-")
            || name.starts_with("proxy-")
    });
    if relayed {
        return reject(StatusCode::BAD_REQUEST, "forwarded", "requests forwarded by a proxy are not allowed");
    }
    Ok(())
}

fn check_body(method: &Method, headers: &HeaderMap) -> Result<(), PageRejection> {
    // With a length, a form that is too large is refused before any of it is read.
    if headers.contains_key(TRANSFER_ENCODING) {
        return reject(StatusCode::BAD_REQUEST, "framing", "the body must have a Content-Length");
    }
    let length = match single(headers, &CONTENT_LENGTH)? {
        None => 0,
        Some(length) => match length.parse::<usize>() {
            Ok(length) => length,
            Err(_) => return reject(StatusCode::BAD_REQUEST, "framing", "Content-Length is not a number"),
        },
    };
    if length > MAX_FORM {
        return reject(StatusCode::PAYLOAD_TOO_LARGE, "body", "the form is larger than 16 KiB");
    }
    let is_form =
        single(headers, &CONTENT_TYPE)?.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    if *method == Method::POST && !is_form {
        return reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, "body", "a form is expected");
    }
    Ok(())
}

/// Returns the only value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, PageRejection> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(value) => Ok(Some(value)),
            Err(_) => reject(StatusCode::BAD_REQUEST, "headers", "a header holds other characters than ASCII"),
        },
        (Some(_), Some(_)) => {
            reject(StatusCode::BAD_REQUEST, "headers", "a header that may occur only once is repeated")
        }
    }
}

fn reject<T>(status: StatusCode, reason: &'static str, message: &'static str) -> Result<T, PageRejection> {
    Err(PageRejection { status, reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(address: &str, tls: bool) -> PageGuard {
        let allowed_hosts = ["pages.example.com".to_owned()].into();
        PageGuard::new(&Options { key: "k".into(), allowed_hosts, address: address.parse().unwrap(), tls })
    }

    fn check(guard: &PageGuard, peer: &str, method: &str, headers: &[(&str, &str)]) -> Result<(), &'static str> {
        let mut request = Request::builder().method(method).uri("/agent");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let peer = Peer::Tcp { address: peer.parse().unwrap(), local: ([127, 0, 0, 1], 8310).into(), owner: None };
        guard.check(&peer, &request.body(()).unwrap()).map_err(|rejection| rejection.reason)
    }

    #[test]
    fn only_the_address_bar_and_pages_of_the_same_origin_are_served() {
        let guard = guard("127.0.0.1:8310", false);
        let get = |headers: &[(&str, &str)]| check(&guard, "127.0.0.1:4000", "GET", headers);
        let own = ("host", "127.0.0.1:8310");
        assert_eq!(get(&[own]), Ok(()));
        assert_eq!(get(&[own, ("sec-fetch-site", "none")]), Ok(()));
        assert_eq!(get(&[own, ("sec-fetch-site", "same-origin")]), Ok(()));
        assert_eq!(get(&[own, ("sec-fetch-site", "cross-site")]), Err("origin"));
        assert_eq!(get(&[own, ("sec-fetch-site", "same-site")]), Err("origin"));
        assert_eq!(get(&[own, ("origin", "http://127.0.0.1:8310")]), Ok(()));
        for origin in
            ["null", "https://127.0.0.1:8310", "http://127.0.0.1:8311", "http://localhost:8310", "http://evil"]
        {
            assert_eq!(get(&[own, ("origin", origin)]), Err("origin"), "{origin}");
        }
        assert_eq!(get(&[]), Err("host"));
        assert_eq!(get(&[own, own]), Err("headers"));
        for host in ["evil.example", "127.0.0.1.evil:8310", "127.0.0.1:1", "0.0.0.0:8310"] {
            assert_eq!(get(&[("host", host)]), Err("host"), "{host}");
        }
        assert_eq!(get(&[("host", "localhost:8310")]), Ok(()));
        assert_eq!(get(&[("host", "pages.example.com")]), Ok(()));
        assert_eq!(get(&[own, ("x-forwarded-for", "")]), Err("forwarded"));
        assert_eq!(check(&guard, "192.0.2.1:4000", "GET", &[own]), Err("peer"));
    }

    #[test]
    fn a_form_needs_its_origin_a_type_and_a_bounded_length() {
        let guard = guard("[::1]:8310", false);
        let own = [("host", "[::1]:8310"), ("origin", "http://[::1]:8310")];
        let post = |more: &[(&str, &str)]| check(&guard, "[::1]:4000", "POST", &[&own[..], more].concat());
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert_eq!(post(&[form, ("content-length", "16384")]), Ok(()));
        assert_eq!(post(&[form, ("content-length", "16385")]), Err("body"));
        assert_eq!(post(&[form, ("content-length", "x")]), Err("framing"));
        assert_eq!(post(&[form, ("transfer-encoding", "chunked")]), Err("framing"));
        assert_eq!(post(&[("content-type", "text/plain")]), Err("body"));
        assert_eq!(check(&guard, "[::1]:4000", "POST", &[own[0], form]), Err("origin"));
    }

    #[test]
    fn beyond_loopback_tls_makes_the_origin() {
        let guard = guard("192.0.2.7:8310", true);
        let get = |headers: &[(&str, &str)]| check(&guard, "192.0.2.9:4000", "GET", headers);
        let own = ("host", "192.0.2.7:8310");
        assert_eq!(get(&[own, ("origin", "https://192.0.2.7:8310")]), Ok(()));
        assert_eq!(get(&[own, ("origin", "http://192.0.2.7:8310")]), Err("origin"));
        assert_eq!(get(&[("host", "localhost:8310")]), Err("host"));
    }
}
