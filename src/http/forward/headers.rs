//! Which headers belong to one hop alone (RFC 9110, 7.6.1): they are the connection's, not the message's. And which are for
//! those alone who speak with the upstream themselves.

use http::header::{CONNECTION, CONTENT_LENGTH, TE};
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

fn is_of_one_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "keep-alive"
            | "proxy-connection"
    )
}

/// Whether a header of an answer is the upstream's word to those who speak with it directly: a client that keeps a cookie
/// would be taken for a browser by a local listener, and one that follows the others would leave it. `name` is in lower case.
pub fn is_direct(name: &str) -> bool {
    matches!(name, "set-cookie" | "strict-transport-security" | "alt-svc")
}

/// Removes the headers that are `unwanted`, which is asked with names in lower case. Few messages have any: to look at what
/// is there costs less than to look for each name.
pub fn remove_all(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) {
    let there: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect();
    for name in there {
        headers.remove(name);
    }
}

fn remove_hop(headers: &mut HeaderMap) {
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
    remove_all(headers, is_of_one_hop);
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

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
