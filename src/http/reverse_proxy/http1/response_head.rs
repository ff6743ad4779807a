//! An answer's head (RFC 9112, 4 to 6), without what is its hop's.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use httparse::{Header, ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::body_decoder::{Chunk, Expected, Malformed};
use crate::http::reverse_proxy::headers;

/// An answer's head.
#[derive(Debug)]
pub(super) struct Head {
    /// What the caller is told.
    pub(super) response: Response<()>,
    /// What of its body comes.
    pub(super) body: Expected,
    /// Whether the connection may stay when it is read.
    pub(super) stays: bool,
}

/// Reads the head of an answer and takes it off `received`; `None` if more of it has to come. Interim answers are taken off
/// and passed over. `bodiless` says that the request was one whose answer has no body whatever its head tells.
pub(super) fn take(received: &mut Bytes, bodiless: bool) -> Result<Option<Head>, Malformed> {
    loop {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_HEADERS];
        let mut found = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut found, received, &mut room);
        let Status::Complete(length) = parsed.map_err(Malformed::Head)? else {
            return if received.len() > LONGEST_HEAD { Err(Malformed::TooLong) } else { Ok(None) };
        };
        let status = found
            .code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .ok_or(Malformed::Head(httparse::Error::Status))?;
        let interim = status.is_informational();
        let head = match status {
            StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed::Protocol),
            _ if interim => None,
            _ => Some(head(received, &found, status, bodiless)?),
        };
        let _ = received.split_to(length);
        if !interim {
            return Ok(head);
        }
    }
}

fn head(
    received: &Bytes,
    found: &httparse::Response<'_, '_>,
    status: StatusCode,
    bodiless: bool,
) -> Result<Head, Malformed> {
    let modern = found.version == Some(1);
    let mut headers = HeaderMap::with_capacity(found.headers.len());
    let (mut closes, mut named, mut length, mut codings) = (!modern, Vec::new(), None, 0);
    for header in &*found.headers {
        let name =
            HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Malformed::Head(httparse::Error::HeaderName))?;
        // The bytes are shared: no header is copied.
        let value = HeaderValue::from_maybe_shared(received.slice_ref(header.value))
            .map_err(|_| Malformed::Head(httparse::Error::HeaderValue))?;
        if name == CONNECTION {
            match value.as_bytes() {
                // What most say.
                b"keep-alive" => closes &= modern,
                _ => {
                    for token in headers::tokens(&value) {
                        if token.eq_ignore_ascii_case("close") {
                            closes = true;
                        } else if token.eq_ignore_ascii_case("keep-alive") {
                            closes &= modern;
                        } else {
                            named.extend(headers::named(token));
                        }
                    }
                }
            }
        } else if name == TRANSFER_ENCODING {
            // Chunks are all that was asked for. Whoever knows none would take the coding for the content.
            if !modern || !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Coding);
            }
            codings += 1;
        } else if name == CONTENT_LENGTH {
            let told = told(&value).ok_or(Malformed::Length)?;
            match length {
                None => {
                    length = Some(told);
                    headers.insert(name, value);
                }
                Some(before) if before == told => {}
                Some(_) => return Err(Malformed::Length),
            }
        } else if !headers::is_of_one_hop(name.as_str()) {
            headers.append(name, value);
        }
    }
    for name in named {
        headers.remove(name);
    }
    let chunked = codings == 1;
    let body = match (status, length) {
        _ if bodiless => Expected::Nothing,
        (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED, _) => Expected::Nothing,
        _ if codings > 1 => return Err(Malformed::Coding),
        _ if chunked => Expected::Chunks(Chunk::Size),
        (_, Some(0)) => Expected::Nothing,
        (_, Some(length)) => Expected::Length(length),
        (_, None) => Expected::All,
    };
    if chunked {
        // Chunks win, and whoever tells both is not to be trusted with another request.
        closes |= headers.remove(CONTENT_LENGTH).is_some();
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(reason) = found.reason
        && status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    Ok(Head { response, body, stays: !closes && body != Expected::All })
}

/// A length: digits alone, or a list of the same length.
fn told(value: &HeaderValue) -> Option<u64> {
    let mut lengths = value.to_str().ok()?.split(',').map(|text| {
        let text = text.trim();
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    });
    let first: u64 = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// How long a head may be, in bytes, and how many headers it may have: more than the servers that are asked here send.
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(u16, Expected, bool, String)>, Malformed> {
        let mut received = Bytes::copy_from_slice(text.as_bytes());
        take(&mut received, false).map(|head| {
            head.map(|head| {
                let headers: Vec<String> = (head.response.headers().iter())
                    .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
                    .collect();
                let said = format!("{}|{}", headers.join(" "), String::from_utf8_lossy(&received));
                (head.response.status().as_u16(), head.body, head.stays, said)
            })
        })
    }

    #[test]
    fn a_head_tells_where_its_body_ends_and_whether_the_connection_stays() {
        let check = |text: &str, wanted: (u16, Expected, bool, &str)| {
            let (status, body, stays, said) = read(text).unwrap().unwrap();
            assert_eq!((status, body, stays, said.as_str()), wanted, "{text:?}");
        };
        let chunks = Expected::Chunks(Chunk::Size);
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            (200, Expected::Length(2), true, "content-length=2|ok"),
        );
        check("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", (200, Expected::Nothing, true, "content-length=0|"));
        check("HTTP/1.1 204 \r\nA: 1\r\n\r\n", (204, Expected::Nothing, true, "a=1|"));
        check("HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n", (304, Expected::Nothing, true, "content-length=9|"));
        check("HTTP/1.1 200 \r\n\r\nrest", (200, Expected::All, false, "|rest"));
        check("HTTP/1.1 200 \r\nTransfer-Encoding: Chunked \r\n\r\n0", (200, chunks, true, "|0"));
        check("HTTP/1.1 200 \r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", (200, chunks, false, "|"));
        check(
            "HTTP/1.1 200 \r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\n",
            (200, Expected::Length(2), true, "content-length=2, 2|"),
        );
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: a\r\n\r\nHTTP/1.1 201 \r\nContent-Length: 1\r\n\r\n",
            (201, Expected::Length(1), true, "content-length=1|"),
        );
        let closing = |head: &str| read(&format!("{head}Content-Length: 1\r\n\r\n")).unwrap().unwrap();
        for (head, stays, said) in [
            ("HTTP/1.1 200 \r\nConnection: close\r\n", false, "content-length=1|"),
            ("HTTP/1.1 200 \r\nConnection: keep-alive, Close\r\n", false, "content-length=1|"),
            ("HTTP/1.1 200 \r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n", true, "content-length=1|"),
            ("HTTP/1.0 200 \r\n", false, "content-length=1|"),
            ("HTTP/1.0 200 \r\nConnection: Keep-Alive\r\n", true, "content-length=1|"),
        ] {
            let found = closing(head);
            assert_eq!((found.2, found.3.as_str()), (stays, said), "{head:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_read() {
        for (rest, wanted) in [
            ("Content-Length: 1\r\nContent-Length: 2\r\n", Malformed::Length),
            ("Content-Length: 1, 2\r\n", Malformed::Length),
            ("Content-Length: +1\r\n", Malformed::Length),
            ("Content-Length: \r\n", Malformed::Length),
            ("Content-Length: 18446744073709551616\r\n", Malformed::Length),
            ("Transfer-Encoding: gzip, chunked\r\n", Malformed::Coding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Malformed::Coding),
            ("A : 1\r\n", Malformed::Head(httparse::Error::HeaderName)),
            (" A: 1\r\n", Malformed::Head(httparse::Error::HeaderName)),
            ("A: 1\r\n b\r\n", Malformed::Head(httparse::Error::HeaderName)),
        ] {
            assert_eq!(read(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n")), Err(wanted), "{rest:?}");
        }
        assert_eq!(read("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Malformed::Coding));
        assert_eq!(read("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Err(Malformed::Protocol));
        assert_eq!(read("SSH-2.0-OpenSSH_9.2\r\n"), Err(Malformed::Head(httparse::Error::Version)));
        assert_eq!(read(&format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(LONGEST_HEAD))), Err(Malformed::TooLong));
    }

    #[test]
    fn a_head_that_is_not_all_there_is_waited_for() {
        let whole = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None), "{:?}", &whole[..end]);
        }
        assert!(read(whole).unwrap().is_some());
    }

    proptest::proptest! {
        #[test]
        fn no_head_makes_it_panic_and_a_longer_piece_of_it_reads_the_same(
            lines in proptest::collection::vec("[ -~\t]{0,30}", 0..6),
            rest in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
        ) {
            let head = [&["HTTP/1.1 200 OK".to_owned()], &*lines, &[String::new(), String::new()]].concat().join("\r\n");
            let told = |bytes: &[u8]| {
                let mut received = Bytes::copy_from_slice(bytes);
                let head = take(&mut received, false)?;
                Ok(head.map(|head| (head.response.headers().clone(), head.body, head.stays, received.len())))
            };
            let alone: Result<_, Malformed> = told(head.as_bytes());
            let more: Result<_, Malformed> = told(&[head.as_bytes(), &rest].concat());
            match (alone, more) {
                (Ok(Some(alone)), Ok(Some(more))) => {
                    proptest::prop_assert_eq!((&alone.0, alone.1, alone.2), (&more.0, more.1, more.2));
                    proptest::prop_assert_eq!(more.3, alone.3 + rest.len());
                }
                (alone, more) => proptest::prop_assert_eq!(alone, more),
            }
        }
    }
}
