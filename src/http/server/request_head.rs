//! Parses the heads of requests (RFC 9112, 2 to 7). Pure.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Uri, Version};
use httparse::{Header, ParserConfig, Status};
use memchr::memchr_iter;

use crate::http1::body_decoder::{BodyDecoder, ChunkState};
use crate::http1::headers::{parse_name, take_map};

/// Head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: Request<()>,
    /// Decoder of the body.
    pub(super) body: BodyDecoder,
    pub(super) traits: RequestTraits,
}

/// Facts of a request that its response depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestTraits {
    /// The request is of HTTP/1.0, whose client knows no chunked coding.
    pub(super) is_http10: bool,
    /// The response has no body, whatever its headers.
    pub(super) is_head: bool,
    /// The client keeps the connection open.
    pub(super) keeps_alive: bool,
    /// The client sends its body after an interim response.
    pub(super) expects_continue: bool,
    pub(super) takes_trailers: bool,
}

/// Reason why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadError {
    /// It has too many bytes or headers.
    TooLarge,
    /// It is not HTTP/1, or its framing has no meaning.
    Malformed,
}

/// Parses a head of at most `limit` bytes and removes it from `received`; `None` if more bytes are needed.
///
/// A `Content-Length` beside a `Transfer-Encoding` is left in place, so that the guard can reject it: a proxy in front may
/// have framed the body by it (request smuggling).
pub(super) fn parse(received: &mut Bytes, limit: usize) -> Result<Option<RequestHead>, HeadError> {
    let mut headers_buffer = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    let parsed = ParserConfig::default().parse_request_with_uninit_headers(&mut head, received, &mut headers_buffer);
    let length = match parsed {
        Ok(Status::Complete(length)) if length > limit => return Err(HeadError::TooLarge),
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if received.len() > limit => return Err(HeadError::TooLarge),
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(_) => return Err(HeadError::Malformed),
    };
    let head = build(received, &head)?;
    let _ = received.split_to(length);
    Ok(Some(head))
}

/// Returns true if a head may end behind the first `from` bytes, which are no complete one.
pub(super) fn may_end(received: &[u8], from: usize) -> bool {
    let tail = received.get(from.saturating_sub(2)..).unwrap_or_default();
    memchr_iter(b'\n', tail).any(|at| matches!(tail.get(at + 1..), Some([b'\n', ..] | [b'\r', b'\n', ..])))
}

fn build(received: &Bytes, raw: &httparse::Request<'_, '_>) -> Result<RequestHead, HeadError> {
    let (Some(method), Some(path), Some(version)) = (raw.method, raw.path, raw.version) else {
        return Err(HeadError::Malformed);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Malformed)?;
    // Target and values share the received bytes; nothing is copied.
    let uri = Uri::from_maybe_shared(received.slice_ref(path.as_bytes())).map_err(|_| HeadError::Malformed)?;
    let is_http10 = version == 0;
    let mut request = Request::new(());
    let mut framing = Framing::default();
    let mut traits = RequestTraits {
        is_http10,
        is_head: method == Method::HEAD,
        keeps_alive: !is_http10,
        expects_continue: false,
        takes_trailers: false,
    };
    let mut closes = false;
    let mut headers = take_map(raw.headers.len());
    for header in &*raw.headers {
        let name = parse_name(header.name.as_bytes()).map_err(|_| HeadError::Malformed)?;
        let value =
            HeaderValue::from_maybe_shared(received.slice_ref(header.value)).map_err(|_| HeadError::Malformed)?;
        if name == CONNECTION {
            closes |= has_token(&value, "close");
            traits.keeps_alive |= has_token(&value, "keep-alive");
        } else if name == CONTENT_LENGTH {
            framing.add_length(&value)?;
        } else if name == TRANSFER_ENCODING {
            framing.add_coding(&value);
        } else if name == EXPECT {
            traits.expects_continue = !is_http10 && value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        } else if name == TE {
            traits.takes_trailers |= has_token(&value, "trailers");
        }
        headers.append(name, value);
    }
    // A connection with both headers is not used again (RFC 9112, 6.1).
    closes |= framing.length.is_some() && framing.is_chunked.is_some();
    traits.keeps_alive &= !closes;
    let body = framing.decoder(is_http10)?;
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    if is_http10 {
        *request.version_mut() = Version::HTTP_10;
    }
    Ok(RequestHead { request, body, traits })
}

/// Framing of a request's body by its headers (RFC 9112, 6.3).
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    /// The last transfer coding is chunked; `None` without a coding.
    is_chunked: Option<bool>,
}

impl Framing {
    fn add_length(&mut self, value: &HeaderValue) -> Result<(), HeadError> {
        let bytes = value.as_bytes();
        let is_decimal = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
        let length = value.to_str().ok().filter(|_| is_decimal).and_then(|text| text.parse().ok());
        let length = length.ok_or(HeadError::Malformed)?;
        if self.length.is_some_and(|before| before != length) {
            return Err(HeadError::Malformed);
        }
        self.length = Some(length);
        Ok(())
    }

    fn add_coding(&mut self, value: &HeaderValue) {
        let last = value.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
        self.is_chunked = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
    }

    const fn decoder(&self, is_http10: bool) -> Result<BodyDecoder, HeadError> {
        match (self.is_chunked, self.length) {
            // A body whose end cannot be found (RFC 9112, 6.3); HTTP/1.0 has no codings.
            (Some(false), _) => Err(HeadError::Malformed),
            (Some(true), _) if is_http10 => Err(HeadError::Malformed),
            (Some(true), _) => Ok(BodyDecoder::Chunks(ChunkState::Size)),
            (None, None | Some(0)) => Ok(BodyDecoder::Nothing),
            (None, Some(length)) => Ok(BodyDecoder::Length(length)),
        }
    }
}

/// Returns true if a comma-separated header value has this token.
pub(super) fn has_token(value: &HeaderValue, token: &str) -> bool {
    let bytes = value.as_bytes();
    // Most values are this one token, or another of the same kind.
    bytes.eq_ignore_ascii_case(token.as_bytes())
        || bytes.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Largest number of headers; the guard has a lower limit.
const MAX_HEADERS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(RequestHead, usize)>, HeadError> {
        let mut received = Bytes::copy_from_slice(text.as_bytes());
        Ok(parse(&mut received, 1000)?.map(|head| (head, received.len())))
    }

    fn framing(lines: &str) -> Result<BodyDecoder, HeadError> {
        read(&format!("POST / HTTP/1.1\r\n{lines}\r\n")).map(|head| head.unwrap().0.body)
    }

    #[test]
    fn a_head_has_its_method_target_headers_and_rest() {
        let (head, rest) = read("\r\nLIST /a?b=c HTTP/1.1\r\nHost: x\r\nA: 1\r\na: 2\r\n\r\nabc").unwrap().unwrap();
        assert_eq!((head.request.method().as_str(), head.request.uri().to_string()), ("LIST", "/a?b=c".to_owned()));
        let values: Vec<_> = head.request.headers().get_all("a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!((rest, head.body), (3, BodyDecoder::Nothing));
        for partial in ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r"] {
            assert!(read(partial).unwrap().is_none(), "{partial:?}");
        }
        let whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for at in 1..whole.len() {
            assert!(may_end(whole, at) && !may_end(&whole[..at], at - 1), "{at}");
        }
    }

    #[test]
    fn a_body_is_framed_by_its_headers_and_a_doubtful_framing_is_refused() {
        let chunks = BodyDecoder::Chunks(ChunkState::Size);
        for (lines, expected) in [
            ("", Ok(BodyDecoder::Nothing)),
            ("Content-Length: 0\r\n", Ok(BodyDecoder::Nothing)),
            ("Content-Length: 12\r\n", Ok(BodyDecoder::Length(12))),
            ("Content-Length: 2\r\nContent-Length: 2\r\n", Ok(BodyDecoder::Length(2))),
            ("Transfer-Encoding: Chunked\r\n", Ok(chunks)),
            ("Transfer-Encoding: gzip, chunked\r\n", Ok(chunks)),
            ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", Ok(chunks)),
            ("Content-Length: 2\r\nContent-Length: 3\r\n", Err(HeadError::Malformed)),
            ("Content-Length: +2\r\n", Err(HeadError::Malformed)),
            ("Content-Length: 2, 2\r\n", Err(HeadError::Malformed)),
            ("Content-Length: \r\n", Err(HeadError::Malformed)),
            ("Content-Length: 18446744073709551616\r\n", Err(HeadError::Malformed)),
            ("Transfer-Encoding: chunked, gzip\r\n", Err(HeadError::Malformed)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", Err(HeadError::Malformed)),
            ("A : 1\r\n", Err(HeadError::Malformed)),
            ("A: 1\r\n b\r\n", Err(HeadError::Malformed)),
        ] {
            assert_eq!(framing(lines), expected, "{lines:?}");
        }
        let old = read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old.unwrap_err(), HeadError::Malformed);
    }

    #[test]
    fn the_client_says_if_the_connection_stays_open() {
        for (version, lines, expected) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: Upgrade, Close\r\nConnection: keep-alive\r\n", false),
            ("1.1", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
        ] {
            let (head, _) = read(&format!("GET / HTTP/{version}\r\n{lines}\r\n")).unwrap().unwrap();
            assert_eq!(head.traits.keeps_alive, expected, "{version} {lines:?}");
        }
    }

    #[test]
    fn a_head_beyond_a_limit_is_too_large_and_one_that_is_not_http_malformed() {
        let long = "x".repeat(1000);
        let many = "A: 1\r\n".repeat(MAX_HEADERS + 1);
        let headers_only = Bytes::from(format!("GET / HTTP/1.1\r\n{many}\r\n"));
        assert_eq!(parse(&mut headers_only.clone(), 10_000).unwrap_err(), HeadError::TooLarge);
        for (text, expected) in [
            (format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n"), HeadError::TooLarge),
            (format!("GET / HTTP/1.1\r\nA: {long}"), HeadError::TooLarge),
            ("GET / HTTP/2.0\r\n\r\n".to_owned(), HeadError::Malformed),
            ("\u{16}\u{3}\u{1}".to_owned(), HeadError::Malformed),
            ("GET  / HTTP/1.1\r\n\r\n".to_owned(), HeadError::Malformed),
        ] {
            assert_eq!(read(&text).unwrap_err(), expected, "{text:.40}");
        }
    }
}
