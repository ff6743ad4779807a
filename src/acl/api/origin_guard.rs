//! Refuses requests of web pages: those with an `Origin`, and those for a host name that is not allowed.
//!
//! A page may call the host name it was loaded from with any header, also after the name's owner made it resolve to this
//! server (DNS rebinding). The page could then use a token that the browser stores, or none if `default_policy` is `allow`.
//! Programs send neither `Origin` nor `Sec-Fetch-*`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Request, header};
use keyward_http::guard::is_allowed_host;
use keyward_http::server::{HttpMetrics, RefusalLabels};
use keyward_telemetry::metrics::Metrics;

use super::error::ApiError;

/// Browser rules of one socket.
#[derive(Debug)]
pub(super) struct BrowserGuard {
    /// Allowed values of `Host`, without port; `None` for any.
    hosts: Option<BTreeSet<String>>,
    metrics: Metrics,
    /// True after the first refusal, the only one that is logged.
    has_logged: AtomicBool,
}

impl BrowserGuard {
    /// Builds the rules of a socket bound to `address` (`None` for a unix socket). On loopback `Host` must name this machine or
    /// an allowed host; elsewhere it is checked where allowed hosts are configured.
    pub(super) fn new(allowed: &BTreeSet<String>, address: Option<SocketAddr>, metrics: Metrics) -> Self {
        let checked = address.map(|address| (address.ip(), address.ip().to_canonical()));
        let hosts = checked.filter(|(_, ip)| ip.is_loopback() || !allowed.is_empty()).map(|(bound, canonical)| {
            let mut hosts: BTreeSet<String> = allowed.iter().map(|host| host.to_ascii_lowercase()).collect();
            hosts.insert("localhost".to_owned());
            // Clients of a socket on an IPv4-mapped address name it in either form.
            for ip in [bound, canonical] {
                hosts.insert(if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() });
            }
            hosts
        });
        Self { hosts, metrics, has_logged: AtomicBool::new(false) }
    }

    /// Checks the head of a request, and refuses it if a web page may have sent it.
    pub(super) fn verify<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        let (reason, error) = if is_from_a_page(request.headers()) {
            ("browser", ApiError::BrowserRequest)
        } else if self.hosts.as_ref().is_some_and(|hosts| !names_one_of(request, hosts)) {
            let hosts: Vec<&str> = self.hosts.iter().flatten().map(String::as_str).collect();
            ("host", ApiError::HostNotAllowed { allowed: hosts.join(", ") })
        } else {
            return Ok(());
        };
        let label = RefusalLabels { listener: "acl".to_owned(), reason };
        self.metrics.get::<HttpMetrics>().refused.get_or_create(&label).inc();
        if !self.has_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "acl.request.refused",
                reason,
                "refused a request from a web page; further ones are only counted"
            );
        }
        Err(error)
    }
}

fn is_from_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"))
}

/// True if `Host`, and the authority of the request target if there is one, are among the hosts.
fn names_one_of<B>(request: &Request<B>, hosts: &BTreeSet<String>) -> bool {
    let mut values = request.headers().get_all(header::HOST).iter();
    // Exactly one (RFC 9112, 3.2): of two, a proxy may have used the other.
    let (Some(host), None) = (values.next(), values.next()) else { return false };
    // An absolute-form target replaces `Host` (RFC 9112, 3.2.2): both must be allowed.
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    host.to_str().is_ok_and(|host| is_allowed_host(host, hosts, None))
        && target.is_none_or(|target| is_allowed_host(target, hosts, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_checked_on_loopback_and_where_hosts_are_configured() {
        let check = |allowed: &[&str], address: Option<&str>, host: &str, expected: bool| {
            let allowed = allowed.iter().map(|host| (*host).to_owned()).collect();
            let address = address.map(|address| address.parse().unwrap());
            let guard = BrowserGuard::new(&allowed, address, Metrics::default());
            let request = Request::get("/v1/acl/token/self").header("host", host).body(()).unwrap();
            assert_eq!(guard.verify(&request).is_ok(), expected, "{host} at {address:?}");
        };
        for host in ["localhost", "LOCALHOST:8500", "127.0.0.1", "127.0.0.1:9"] {
            check(&[], Some("127.0.0.1:8500"), host, true);
        }
        for host in ["evil.example.com", "127.0.0.1.evil", "127.0.0.2", "[::1]", "a@127.0.0.1", "", "localhost:x"] {
            check(&[], Some("127.0.0.1:8500"), host, false);
        }
        check(&[], Some("[::1]:8500"), "[::1]:8500", true);
        check(&[], Some("[::ffff:127.0.0.1]:8500"), "127.0.0.1:8500", true);
        check(&["acl.example.com"], Some("127.0.0.1:8500"), "ACL.example.com", true);
        check(&[], Some("0.0.0.0:8500"), "evil.example.com", true);
        check(&["acl.example.com"], Some("0.0.0.0:8500"), "evil.example.com", false);
        check(&["acl.example.com"], Some("0.0.0.0:8500"), "acl.example.com:8500", true);
        check(&["acl.example.com"], None, "evil.example.com", true);
    }
}
