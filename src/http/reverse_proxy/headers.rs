//! Classifies hop-by-hop headers (RFC 9110, 7.6.1) and headers for direct clients of an upstream.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::guard::is_end_to_end;

/// Returns true for a hop-by-hop header, and for others that are never forwarded. `name` is in lower case.
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "keep-alive"
            | "proxy-connection"
            // The key of a listener is for that listener only.
            | "x-keyward-key"
            // They give a request another method or path than the one that was checked.
            | "x-http-method"
            | "x-http-method-override"
            | "x-method-override"
            | "x-original-url"
            | "x-rewrite-url"
    )
}

/// Returns true for a response header that is meant for direct clients of the upstream. A client that keeps a cookie
/// would be rejected as a browser by a local listener; one that follows the others would leave it; and the upstream's
/// CORS rules do not apply to a local listener. `name` is in lower case.
pub fn is_direct(name: &str) -> bool {
    matches!(name, "set-cookie" | "strict-transport-security" | "alt-svc") || name.starts_with("access-control-")
}

/// Removes the headers for which `unwanted` returns true; it is called with names in lower case. Few messages have any,
/// so one pass over the headers is cheaper than a lookup of each name.
pub fn remove_all(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Parses the header that a token of `Connection` names; `None` for other tokens and for end-to-end headers.
pub(super) fn parse_connection_option(token: &str) -> Option<HeaderName> {
    // The most common tokens name no header.
    if token.eq_ignore_ascii_case("keep-alive") || token.eq_ignore_ascii_case("close") {
        return None;
    }
    // A sender must not be able to remove a header that the meaning of the message depends on.
    token.parse().ok().filter(|name: &HeaderName| !is_end_to_end(name.as_str().as_bytes()))
}

pub(super) fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}
