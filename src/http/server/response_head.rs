//! Encodes the heads of responses (RFC 9112, 4 to 7).

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use hyper::ext::ReasonPhrase;
use keyward_machine::clock::coarse_unix_seconds;
use keyward_telemetry::time_format::format_http_date;

use super::request_head::{RequestTraits, has_token};
use crate::http1::message_writer::BodyFraming;

/// Framing of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    /// There is no body. The length is that of the body which `GET` would get, or of an empty one.
    Bodiless(Option<u64>),
    /// A body follows.
    Body(BodyFraming),
}

impl ResponseFraming {
    /// Frames a response whose body has this length, if known.
    pub(super) fn new(status: StatusCode, headers: HeadFacts, length: Option<u64>, traits: RequestTraits) -> Self {
        // A service asks for chunks if trailers follow the body.
        let length = length.filter(|_| !headers.has_coding);
        match status {
            StatusCode::NO_CONTENT => Self::Bodiless(None),
            StatusCode::NOT_MODIFIED => Self::Bodiless(headers.length),
            // A body in memory may have been left out of the response to `HEAD`.
            _ if traits.is_head => Self::Bodiless(headers.length.or(length.filter(|length| *length > 0))),
            _ => match length.or(headers.length) {
                Some(0) => Self::Bodiless(Some(0)),
                Some(length) => Self::Body(BodyFraming::Length(length)),
                None if traits.is_http10 => Self::Body(BodyFraming::UntilClose),
                None => Self::Body(BodyFraming::Chunks),
            },
        }
    }
}

/// Facts of a response's head, found in one pass: a look-up of each header costs its hash.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeadFacts {
    /// `Content-Length`, in bytes.
    length: Option<u64>,
    has_coding: bool,
    /// The service ends the connection.
    pub(super) says_close: bool,
}

impl HeadFacts {
    pub(super) fn parse(headers: &HeaderMap) -> Self {
        let mut facts = Self::default();
        for (name, value) in headers {
            if *name == CONTENT_LENGTH {
                facts.length = value.to_str().ok().and_then(|text| text.parse().ok());
            } else if *name == TRANSFER_ENCODING {
                facts.has_coding = true;
            } else if *name == CONNECTION {
                facts.says_close |= has_token(value, "close");
            }
        }
        facts
    }
}

/// Encodes the head of a response into a buffer of the thread, for `send`, which may append the body. `closes` says that the
/// connection is closed after it.
pub(super) fn with_encoded<R>(
    head: &Parts,
    framing: ResponseFraming,
    traits: RequestTraits,
    closes: bool,
    send: impl FnOnce(&mut Vec<u8>) -> R,
) -> R {
    ENCODED.with_borrow_mut(|encoded| {
        // Empty unless a panic left something.
        encoded.clear();
        encode(encoded, head, framing, traits, closes);
        let result = send(encoded);
        // The bytes may be secret, and the buffer stays.
        encoded.fill(0);
        encoded.clear();
        encoded.shrink_to(MAX_KEPT);
        result
    })
}

/// Capacity that the thread's buffer keeps, in bytes.
const MAX_KEPT: usize = 16 * 1024;

thread_local! {
    static ENCODED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn encode(out: &mut Vec<u8>, head: &Parts, framing: ResponseFraming, traits: RequestTraits, closes: bool) {
    out.extend_from_slice(if traits.is_http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.push(b' ');
    match head.extensions.get::<ReasonPhrase>() {
        Some(reason) => out.extend_from_slice(reason.as_bytes()),
        None => out.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
    let mut has_date = false;
    for (name, value) in &head.headers {
        // Framing is that of this connection.
        if *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING || (*name == CONNECTION && closes) {
            continue;
        }
        has_date |= *name == DATE;
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    match framing {
        ResponseFraming::Bodiless(Some(length)) | ResponseFraming::Body(BodyFraming::Length(length)) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "content-length: {length}\r\n");
        }
        ResponseFraming::Body(BodyFraming::Chunks) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        ResponseFraming::Bodiless(None) | ResponseFraming::Body(BodyFraming::UntilClose) => {}
    }
    if closes {
        out.extend_from_slice(b"connection: close\r\n");
    } else if traits.is_http10 {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
    if !has_date {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(&current_date());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Names of the trailers that may follow a body: those that its head announces, without those that a receiver needs before the
/// body (RFC 9110, 6.5.1). Empty if the client takes none.
pub(super) fn allowed_trailers(headers: &HeaderMap, traits: RequestTraits) -> Vec<HeaderName> {
    let values = headers.get_all(TRAILER).iter().filter(|_| traits.takes_trailers);
    let names = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    let parsed = names.filter_map(|name| name.trim().parse::<HeaderName>().ok());
    parsed.filter(|name| !NEVER_TRAILERS.contains(&name.as_str())).collect()
}

const NEVER_TRAILERS: [&str; 12] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "host",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
];

/// Length of a date, such as `Sun, 29 Nov 2026 17:30:03 GMT`.
const DATE_LENGTH: usize = 29;

thread_local! {
    /// The last second that was formatted, and its text.
    static LAST_DATE: Cell<(u64, [u8; DATE_LENGTH])> = const { Cell::new((u64::MAX, [b' '; DATE_LENGTH])) };
}

/// Returns the current date for `Date`. It is formatted once a second.
fn current_date() -> [u8; DATE_LENGTH] {
    let now = coarse_unix_seconds();
    let (second, text) = LAST_DATE.get();
    if second == now {
        return text;
    }
    let text =
        format_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(now)).into_bytes().try_into().unwrap_or(text);
    LAST_DATE.set((now, text));
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Response;

    use super::*;

    const GET: RequestTraits = RequestTraits {
        is_http10: false,
        is_head: false,
        keeps_alive: true,
        expects_continue: false,
        takes_trailers: false,
    };

    fn lines(
        response: http::response::Builder,
        length: Option<u64>,
        traits: RequestTraits,
        closes: bool,
    ) -> Vec<String> {
        let (head, ()) = response.header("date", "today").body(()).unwrap().into_parts();
        let framing = ResponseFraming::new(head.status, HeadFacts::parse(&head.headers), length, traits);
        let mut out = Vec::new();
        encode(&mut out, &head, framing, traits, closes);
        let text = String::from_utf8(out).unwrap();
        text.strip_suffix("\r\n\r\n")
            .unwrap()
            .lines()
            .filter(|line| *line != "date: today")
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_response_is_framed_by_its_status_its_request_and_its_length() {
        let head = RequestTraits { is_head: true, ..GET };
        let old = RequestTraits { is_http10: true, ..GET };
        let ok = || Response::builder();
        for (built, length, traits, closes, expected) in [
            (ok(), Some(3), GET, false, vec!["HTTP/1.1 200 OK", "content-length: 3"]),
            (ok(), Some(0), GET, false, vec!["HTTP/1.1 200 OK", "content-length: 0"]),
            (ok(), None, GET, false, vec!["HTTP/1.1 200 OK", "transfer-encoding: chunked"]),
            (ok().header("content-length", "9"), None, GET, false, vec!["HTTP/1.1 200 OK", "content-length: 9"]),
            (
                ok().header("a", "b"),
                Some(3),
                GET,
                true,
                vec!["HTTP/1.1 200 OK", "a: b", "content-length: 3", "connection: close"],
            ),
            (ok(), Some(3), head, false, vec!["HTTP/1.1 200 OK", "content-length: 3"]),
            (ok(), Some(0), head, false, vec!["HTTP/1.1 200 OK"]),
            (ok().header("content-length", "9"), Some(0), head, false, vec!["HTTP/1.1 200 OK", "content-length: 9"]),
            (ok().status(204).header("content-length", "9"), Some(0), GET, false, vec!["HTTP/1.1 204 No Content"]),
            (ok().status(304), Some(0), GET, false, vec!["HTTP/1.1 304 Not Modified"]),
            (ok(), None, old, true, vec!["HTTP/1.0 200 OK", "connection: close"]),
            (ok(), Some(3), old, false, vec!["HTTP/1.0 200 OK", "content-length: 3", "connection: keep-alive"]),
            (
                ok().status(299).header("transfer-encoding", "chunked"),
                Some(3),
                GET,
                false,
                vec!["HTTP/1.1 299 ", "transfer-encoding: chunked"],
            ),
        ] {
            assert_eq!(lines(built, length, traits, closes), expected);
        }
    }

    #[test]
    fn the_date_is_one_of_http() {
        let date = String::from_utf8(current_date().to_vec()).unwrap();
        assert!(date.ends_with(" GMT") && date.get(3..5) == Some(", "), "{date}");
    }

    #[test]
    fn only_announced_trailers_are_sent_and_none_of_framing() {
        let mut headers = HeaderMap::new();
        headers
            .insert(TRAILER, http::HeaderValue::from_maybe_shared(Bytes::from("X-Sum, Content-Length,, a b")).unwrap());
        assert!(allowed_trailers(&headers, GET).is_empty());
        let takes = RequestTraits { takes_trailers: true, ..GET };
        assert_eq!(allowed_trailers(&headers, takes), ["x-sum"]);
    }
}
