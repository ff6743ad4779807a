//! The head of a request as it goes to an upstream: written once, without what is of its caller's hop (RFC 9110, 7.6.1).

use std::fmt;
use std::io::Write as _;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use hyper::body::Body as _;
use zeroize::Zeroizing;

use super::headers::{is_hop_by_hop, named, tokens};
use super::request_body::RequestBody;

/// What is asked of an upstream.
#[derive(Debug, Clone, Copy)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a Method,
    /// What stands before the target's path; empty, or with a slash at its start and none at its end.
    pub prefix: &'a str,
    /// The target.
    pub target: &'a PathAndQuery,
    /// The upstream's name, in the place of the caller's word for it.
    pub host: &'a HeaderValue,
}

/// A head, ready to be sent, as often as its body is there. What a header may hold breaks no line of it.
pub struct RequestHead {
    /// All of it, with the empty line at its end. It carries a token, and does not stay in freed memory.
    bytes: Zeroizing<Vec<u8>>,
    /// Where the header is that is worn, or would be.
    auth_offset: usize,
    method: Method,
    ending: BodyFraming,
}

/// How the end of a request's body is told (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// By its length, in bytes.
    Length(u64),
    /// By a last chunk.
    Chunks,
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").field("method", &self.method).finish_non_exhaustive()
    }
}

impl RequestHead {
    /// Of a caller's request, with those of its headers that are kept, for that body. Framing is made anew from the body that
    /// is really sent: its length, if it is known, or chunks.
    pub fn new(
        line: RequestLine<'_>,
        headers: &HeaderMap,
        keeps: impl Fn(&HeaderName) -> bool,
        body: &RequestBody,
    ) -> Self {
        let ending = match body.length() {
            _ if body.is_end_stream() => BodyFraming::Length(0),
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunks,
        };
        let RequestLine { method, prefix, target, host } = line;
        let mut bytes = Zeroizing::new(Vec::with_capacity(ROOM));
        for part in [method.as_str(), " ", prefix, target.as_str(), " HTTP/1.1\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        let mut head = Self { bytes, auth_offset: 0, method: method.clone(), ending };
        head.write(&HOST, host);
        let (mut of_hop, mut trailers, mut announced) = (Vec::new(), false, false);
        for (name, value) in headers {
            if *name == CONNECTION {
                of_hop.extend(tokens(value).filter_map(named));
            } else if *name == TE {
                trailers |= tokens(value).any(|token| token.eq_ignore_ascii_case("trailers"));
            } else if *name == CONTENT_LENGTH {
                announced = true;
            }
        }
        for (name, value) in headers {
            let stays = !is_hop_by_hop(name.as_str()) && *name != CONTENT_LENGTH && *name != HOST;
            if stays && !of_hop.contains(name) && keeps(name) {
                head.write(name, value);
            }
        }
        if trailers {
            head.write(&TE, &HeaderValue::from_static("trailers"));
            head.write(&CONNECTION, &HeaderValue::from_static("te"));
        }
        head.make_room(64);
        match ending {
            // A caller that announces an empty body has it announced, which some servers ask of a `POST`.
            BodyFraming::Length(0) if !announced => {}
            // Into memory, which takes all.
            BodyFraming::Length(length) => drop(write!(&mut *head.bytes, "content-length: {length}\r\n")),
            BodyFraming::Chunks => head.bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        head.end();
        head
    }

    /// Puts a header on. One that the caller has brought by this name must not have been kept.
    pub fn put(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.bytes.truncate(self.auth_offset);
        self.write(name, value);
        self.end();
    }

    /// Puts a header on after all others, in the place of the one that was put on so before.
    pub fn set_auth_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        let auth_offset = self.auth_offset;
        self.put(name, value);
        self.auth_offset = auth_offset;
    }

    fn write(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.make_room(name.as_str().len() + value.len() + 6);
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Makes room for so many more bytes. To grow by itself would leave a copy behind.
    fn make_room(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(2 * needed));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
    }

    fn end(&mut self) {
        self.auth_offset = self.bytes.len();
        self.make_room(2);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) const fn ending(&self) -> BodyFraming {
        self.ending
    }

    /// Whether an answer has no body, whatever its head says.
    pub(super) fn is_bodiless(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Whether it only reads. `LIST` is a method of secrets servers.
    pub(super) fn reads(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD) || self.method.as_str() == "LIST"
    }

    /// Its headers in words, for tests.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.bytes.to_vec()).unwrap();
        text.trim_end().lines().map(str::to_owned).collect()
    }
}

/// Longer than most heads, in bytes.
const ROOM: usize = 512;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn head(prefix: &str, target: &str, given: &[(&str, &str)], body: &'static str) -> RequestHead {
        let (host, target) = (HeaderValue::from_static("up"), target.parse().unwrap());
        let line = RequestLine { method: &Method::POST, prefix, target: &target, host: &host };
        let body = RequestBody::Buffered(Full::new(Bytes::from_static(body.as_bytes())));
        RequestHead::new(line, &map(given), |name| name != "x-unwanted", &body)
    }

    #[test]
    fn headers_of_one_hop_stay_there() {
        let check = |given: &[(&str, &str)], wanted: &[&str]| {
            let lines = head("", "/", given, "").lines();
            assert_eq!(&lines[..2], ["POST / HTTP/1.1", "host: up"]);
            assert_eq!(&lines[2..], wanted, "{given:?}");
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
    fn a_body_is_announced_as_long_as_it_is() {
        let told = |given: &[(&str, &str)], body| head("", "/", given, body).lines().split_off(2);
        assert_eq!(told(&[("content-length", "7")], "five5"), ["content-length: 5"]);
        assert_eq!(told(&[("transfer-encoding", "chunked")], "five5"), ["content-length: 5"]);
        assert!(told(&[], "").is_empty());
    }

    #[test]
    fn a_target_stands_behind_the_upstreams_own_path() {
        let line = |prefix, target| head(prefix, target, &[], "").lines().swap_remove(0);
        assert_eq!(line("", "/v1/a%20b?b=c"), "POST /v1/a%20b?b=c HTTP/1.1");
        assert_eq!(line("/vault", "/v1/a?b"), "POST /vault/v1/a?b HTTP/1.1");
    }

    #[test]
    fn what_is_worn_takes_the_place_of_what_was_worn() {
        let (one, two) = (HeaderValue::from_static("1"), HeaderValue::from_static("two"));
        let (name, auth_offset) = (HeaderName::from_static("x-a"), HeaderName::from_static("x-worn"));
        let mut head = head("", "/", &[], "body");
        head.put(&name, &one);
        head.set_auth_header(&auth_offset, &two);
        head.set_auth_header(&auth_offset, &one);
        assert_eq!(head.lines()[2..], ["content-length: 4", "x-a: 1", "x-worn: 1"]);
        assert!(head.as_bytes().ends_with(b"x-worn: 1\r\n\r\n"));
    }
}
