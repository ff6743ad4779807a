//! Encodes the head of a request to an upstream, without the hop-by-hop headers of the caller (RFC 9110, 7.6.1).

use std::fmt;
use std::io::Write as _;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use hyper::body::Body as _;

use super::headers::{is_hop_by_hop, parse_connection_option, tokens};
use super::request_body::RequestBody;
use crate::http1::message_writer::BodyFraming;

/// Request line and `Host` of a forwarded request.
#[derive(Debug, Clone, Copy)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a Method,
    /// Prefix of the path; empty, or with a leading and without a trailing slash.
    pub prefix: &'a str,
    /// Path and query.
    pub target: &'a PathAndQuery,
    /// `Host` of the upstream, which replaces the caller's.
    pub host: &'a HeaderValue,
}

/// Encoded request head that can be sent repeatedly. Header values cannot contain line breaks (`HeaderValue`).
pub struct RequestHead {
    /// The encoded head with its empty line.
    bytes: Vec<u8>,
    /// Offset of the authentication header, or of the end of the headers.
    auth_offset: usize,
    method: Method,
    framing: BodyFraming,
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead").field("method", &self.method).finish_non_exhaustive()
    }
}

impl RequestHead {
    /// Encodes the head of a caller's request with the headers that `keeps` accepts. Framing is derived from `body`:
    /// its length if known, else chunked.
    pub fn new(
        line: RequestLine<'_>,
        headers: &HeaderMap,
        keeps: impl Fn(&HeaderName) -> bool,
        body: &RequestBody,
    ) -> Self {
        let framing = match body.length() {
            _ if body.is_end_stream() => BodyFraming::Length(0),
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunks,
        };
        let RequestLine { method, prefix, target, host } = line;
        let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
        for part in [method.as_str(), " ", prefix, target.as_str(), " HTTP/1.1\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        let mut head = Self { bytes, auth_offset: 0, method: method.clone(), framing };
        head.write(&HOST, host);
        let mut of_hop = Vec::new();
        let mut trailers = false;
        let mut announced = false;
        for (name, value) in headers {
            if *name == CONNECTION {
                of_hop.extend(tokens(value).filter_map(parse_connection_option));
            } else if *name == TE {
                trailers |= tokens(value).any(|token| token.eq_ignore_ascii_case("trailers"));
            } else if *name == CONTENT_LENGTH {
                announced = true;
            }
        }
        for (name, value) in headers {
            // Length and host are written anew: copied framing would be the caller's word about another message.
            let keep = !is_hop_by_hop(name.as_str()) && *name != CONTENT_LENGTH && *name != HOST;
            if keep && !of_hop.contains(name) && keeps(name) {
                head.write(name, value);
            }
        }
        if trailers {
            head.write(&TE, &HeaderValue::from_static("trailers"));
            // `TE` holds for one hop, so `Connection` must name it (RFC 9110, 10.1.4).
            head.write(&CONNECTION, &HeaderValue::from_static("te"));
        }
        match framing {
            // An announced empty body stays announced: some servers require it of a `POST`.
            BodyFraming::Length(0) if !announced => {}
            // Writing to memory cannot fail.
            BodyFraming::Length(length) => drop(write!(head.bytes, "content-length: {length}\r\n")),
            BodyFraming::Chunks | BodyFraming::UntilClose => {
                head.bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
        }
        head.end();
        head
    }

    /// Appends a header. The caller's header of this name must not have been kept.
    pub fn append_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.bytes.truncate(self.auth_offset);
        self.write(name, value);
        self.end();
    }

    /// Sets the authentication header after all others, replacing the one set before.
    pub fn set_auth_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        let auth_offset = self.auth_offset;
        self.append_header(name, value);
        self.auth_offset = auth_offset;
    }

    fn write(&mut self, name: &HeaderName, value: &HeaderValue) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    fn end(&mut self) {
        self.auth_offset = self.bytes.len();
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) const fn framing(&self) -> BodyFraming {
        self.framing
    }

    /// Returns true if the response has no body, whatever its headers.
    pub(super) fn is_bodiless(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Returns true for a method that only reads. `LIST` is a method of Vault and OpenBao.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD) || self.method.as_str() == "LIST"
    }

    /// Returns the lines of the head, for tests.
    #[cfg(any(test, feature = "test-support"))]
    pub fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.trim_end().lines().map(str::to_owned).collect()
    }
}

/// Initial capacity, more than most heads need, in bytes.
const INITIAL_CAPACITY: usize = 512;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn head(prefix: &str, target: &str, given: &[(&str, &str)], body: &'static str) -> RequestHead {
        let host = HeaderValue::from_static("up");
        let target = target.parse().unwrap();
        let line = RequestLine { method: &Method::POST, prefix, target: &target, host: &host };
        let body = RequestBody::Buffered(Full::new(Bytes::from_static(body.as_bytes())));
        RequestHead::new(line, &map(given), |name| name != "x-unwanted", &body)
    }

    #[test]
    fn hop_by_hop_headers_are_not_forwarded() {
        let check = |given: &[(&str, &str)], expected: &[&str]| {
            let lines = head("", "/", given, "").lines();
            assert_eq!(&lines[..2], ["POST / HTTP/1.1", "host: up"]);
            assert_eq!(&lines[2..], expected, "{given:?}");
        };
        check(&[("host", "mine"), ("accept", "a"), ("x-one", "1")], &["accept: a", "x-one: 1"]);
        check(&[("x-unwanted", "a"), ("x-one", "1")], &["x-one: 1"]);
        check(&[("connection", "x-one, X-Two"), ("x-one", "1"), ("x-two", "2"), ("x-three", "3")], &["x-three: 3"]);
        check(&[("connection", "close, x-one"), ("x-one", "1")], &[]);
        check(&[("keep-alive", "5"), ("proxy-authorization", "a"), ("upgrade", "h2c"), ("te", "gzip")], &[]);
        check(&[("te", "gzip, trailers")], &["te: trailers", "connection: te"]);
        check(&[("transfer-encoding", "chunked")], &[]);
        check(&[("content-length", "0")], &["content-length: 0"]);
        check(
            &[("connection", "x-vault-token, content-type"), ("x-vault-token", "t"), ("content-type", "c")],
            &["x-vault-token: t", "content-type: c"],
        );
        check(&[("connection", "@,  ,x-one"), ("x-one", "1")], &[]);
    }

    #[test]
    fn content_length_is_that_of_the_body_sent() {
        let length_lines = |given: &[(&str, &str)], body| head("", "/", given, body).lines().split_off(2);
        assert_eq!(length_lines(&[("content-length", "7")], "five5"), ["content-length: 5"]);
        assert_eq!(length_lines(&[("transfer-encoding", "chunked")], "five5"), ["content-length: 5"]);
        assert!(length_lines(&[], "").is_empty());
    }

    #[test]
    fn the_upstreams_path_prefixes_the_target() {
        let line = |prefix, target| head(prefix, target, &[], "").lines().swap_remove(0);
        assert_eq!(line("", "/v1/a%20b?b=c"), "POST /v1/a%20b?b=c HTTP/1.1");
        assert_eq!(line("/vault", "/v1/a?b"), "POST /vault/v1/a?b HTTP/1.1");
    }

    #[test]
    fn an_auth_header_replaces_the_one_before() {
        let one = HeaderValue::from_static("1");
        let two = HeaderValue::from_static("two");
        let name = HeaderName::from_static("x-a");
        let auth_offset = HeaderName::from_static("x-worn");
        let mut head = head("", "/", &[], "body");
        head.append_header(&name, &one);
        head.set_auth_header(&auth_offset, &two);
        head.set_auth_header(&auth_offset, &one);
        assert_eq!(head.lines()[2..], ["content-length: 4", "x-a: 1", "x-worn: 1"]);
        assert!(head.as_bytes().ends_with(b"x-worn: 1\r\n\r\n"));
    }
}
