//! Which headers belong to one hop alone (RFC 9110, 7.6.1): they are the connection's, not the message's.

use http::header::{
    CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Takes the caller's hop off. Framing is made anew from the body that is really sent: its length, if it is known and
/// the caller told one, or chunks.
pub(super) fn for_upstream(headers: &mut HeaderMap, length: Option<u64>) {
    let trailers = headers.get_all(TE).iter().any(|value| tokens(value).any(|it| it.eq_ignore_ascii_case("trailers")));
    remove_hop(headers);
    // With it even an empty body is announced, which some servers ask of a `POST`.
    if let Some(length) = headers.remove(CONTENT_LENGTH).and(length) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
}

/// Takes the upstream's hop off. A `Content-Length` stays: the answer to a `HEAD` has it without a body.
pub(super) fn for_caller(headers: &mut HeaderMap) {
    remove_hop(headers);
}

/// The headers of one hop.
static HOP: [HeaderName; 8] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Where in [`HOP`] a name stands. To look at what is there costs less than to look for each of them, and texts of another
/// length are told apart at once.
fn hop(name: &HeaderName) -> Option<usize> {
    match name.as_str() {
        "connection" => Some(0),
        "te" => Some(1),
        "transfer-encoding" => Some(2),
        "upgrade" => Some(3),
        "proxy-authenticate" => Some(4),
        "proxy-authorization" => Some(5),
        "keep-alive" => Some(6),
        "proxy-connection" => Some(7),
        _ => None,
    }
}

fn remove_hop(headers: &mut HeaderMap) {
    let mut there = [false; HOP.len()];
    for at in headers.keys().filter_map(hop) {
        there[at] = true;
    }
    if !there.contains(&true) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        // What most say names no header.
        .filter(|value| *value != "keep-alive" && *value != "close")
        .flat_map(tokens)
        .filter(|name| !name.eq_ignore_ascii_case("keep-alive") && !name.eq_ignore_ascii_case("close"))
        .filter_map(|name| name.parse().ok())
        .collect();
    for name in named {
        // A caller may not have the upstream lose what the message means, or what it is for.
        if !matches!(name.as_str(), "host" | "content-length" | "content-type" | "authorization" | "x-vault-token") {
            headers.remove(name);
        }
    }
    for (name, _) in HOP.iter().zip(there).filter(|(_, there)| *there) {
        headers.remove(name);
    }
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_of_one_hop_is_known_by_its_place() {
        for (at, name) in HOP.iter().enumerate() {
            assert_eq!(hop(name), Some(at), "{name}");
        }
        assert_eq!(hop(&http::header::ACCEPT), None);
    }

    #[test]
    fn headers_of_one_hop_stay_there() {
        let check = |given: &[(&str, &str)], wanted: &[(&str, &str)]| {
            let map = |pairs: &[(&str, &str)]| {
                let mut map = HeaderMap::new();
                for (name, value) in pairs {
                    map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
                }
                map
            };
            let mut headers = map(given);
            for_upstream(&mut headers, Some(5));
            assert_eq!(headers, map(wanted), "{given:?}");
        };
        check(&[("accept", "a"), ("accept", "b"), ("x-one", "1")], &[("accept", "a"), ("accept", "b"), ("x-one", "1")]);
        check(&[("connection", "x-one, X-Two"), ("x-one", "1"), ("x-two", "2"), ("x-three", "3")], &[("x-three", "3")]);
        check(&[("connection", "close"), ("connection", "x-one"), ("x-one", "1")], &[]);
        check(&[("keep-alive", "5"), ("proxy-authorization", "a"), ("upgrade", "h2c"), ("te", "gzip")], &[]);
        check(&[("te", "gzip, trailers")], &[("te", "trailers"), ("connection", "te")]);
        check(&[("transfer-encoding", "chunked")], &[]);
        check(&[("content-length", "7")], &[("content-length", "5")]);
        check(
            &[("connection", "x-vault-token, host"), ("x-vault-token", "t"), ("host", "h")],
            &[("x-vault-token", "t"), ("host", "h")],
        );
        check(&[("connection", "@,  ,x-one"), ("x-one", "1")], &[]);
    }
}
