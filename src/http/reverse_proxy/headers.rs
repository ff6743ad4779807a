//! Which headers belong to one hop alone (RFC 9110, 7.6.1): they are the connection's, not the message's. And which are for
//! those alone who speak with the upstream themselves.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::guard::is_end_to_end;

/// Whether a header is its hop's alone. `name` is in lower case.
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
            // The key of a listener of ours is for that listener alone.
            | "x-keyward-key"
    )
}

/// Whether a header of an answer is the upstream's word to those who speak with it directly: a client that keeps a cookie
/// would be taken for a browser by a local listener, and one that follows the others would leave it. What it allows pages
/// of its own (CORS) is no word about a local listener. `name` is in lower case.
pub fn is_direct(name: &str) -> bool {
    matches!(name, "set-cookie" | "strict-transport-security" | "alt-svc") || name.starts_with("access-control-")
}

/// Removes the headers that are `unwanted`, which is asked with names in lower case. Few messages have any: to look at what
/// is there costs less than to look for each name.
pub fn remove_all(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) {
    let there: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect();
    for name in there {
        headers.remove(name);
    }
}

/// The header that a token of `Connection` takes for its hop's, if it names one.
pub(super) fn named(token: &str) -> Option<HeaderName> {
    // What most say names no header.
    if token.eq_ignore_ascii_case("keep-alive") || token.eq_ignore_ascii_case("close") {
        return None;
    }
    // Nobody may have the other side lose what the message means, or what it is for.
    token.parse().ok().filter(|name: &HeaderName| !is_end_to_end(name.as_str().as_bytes()))
}

pub(super) fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}
