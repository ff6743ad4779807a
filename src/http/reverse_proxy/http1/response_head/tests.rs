use super::*;

fn read(text: &str) -> Result<Option<(u16, BodyDecoder, bool, String)>, ProtocolError> {
    let mut received = Bytes::copy_from_slice(text.as_bytes());
    parse(&mut received, false).map(|head| {
        head.map(|head| {
            let headers: Vec<String> = (head.response.headers().iter())
                .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
                .collect();
            let said = format!("{}|{}", headers.join(" "), String::from_utf8_lossy(&received));
            (head.response.status().as_u16(), head.body, head.reusable, said)
        })
    })
}

#[test]
fn a_head_defines_the_framing_of_its_body_and_the_reuse_of_the_connection() {
    let check = |text: &str, expected: (u16, BodyDecoder, bool, &str)| {
        let (status, body, stays, said) = read(text).unwrap().unwrap();
        assert_eq!((status, body, stays, said.as_str()), expected, "{text:?}");
    };
    let chunks = BodyDecoder::Chunks(ChunkState::Size);
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, BodyDecoder::Length(2), true, "content-length=2|ok"));
    check("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", (200, BodyDecoder::Nothing, true, "content-length=0|"));
    check("HTTP/1.1 204 \r\nA: 1\r\n\r\n", (204, BodyDecoder::Nothing, true, "a=1|"));
    check("HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n", (304, BodyDecoder::Nothing, true, "content-length=9|"));
    check("HTTP/1.1 200 \r\n\r\nrest", (200, BodyDecoder::All, false, "|rest"));
    check("HTTP/1.1 200 \r\nTransfer-Encoding: Chunked \r\n\r\n0", (200, chunks, true, "|0"));
    check("HTTP/1.1 200 \r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", (200, chunks, false, "|"));
    check(
        "HTTP/1.1 200 \r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\n",
        (200, BodyDecoder::Length(2), true, "content-length=2, 2|"),
    );
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: a\r\n\r\nHTTP/1.1 201 \r\nContent-Length: 1\r\n\r\n",
        (201, BodyDecoder::Length(1), true, "content-length=1|"),
    );
    // An interim response has no body, whatever its head says.
    check(
        "HTTP/1.1 103 \r\nContent-Length: x\r\nTransfer-Encoding: gzip\r\n\r\nHTTP/1.1 204 \r\n\r\n",
        (204, BodyDecoder::Nothing, true, "|"),
    );
    let closing = |head: &str| read(&format!("{head}Content-Length: 1\r\n\r\n")).unwrap().unwrap();
    for (head, stays, said) in [
        ("HTTP/1.1 200 \r\nConnection: close\r\n", false, "content-length=1|"),
        ("HTTP/1.1 200 \r\nConnection: keep-alive, Close\r\n", false, "content-length=1|"),
        ("HTTP/1.1 200 \r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n", true, "content-length=1|"),
        ("HTTP/1.1 200 \r\nConnection: keep-alive\r\n", true, "content-length=1|"),
        ("HTTP/1.1 200 \r\nConnection: close\r\nConnection: keep-alive\r\n", false, "content-length=1|"),
        ("HTTP/1.0 200 \r\nConnection: keep-alive\r\n", true, "content-length=1|"),
        ("HTTP/1.0 200 \r\n", false, "content-length=1|"),
        ("HTTP/1.0 200 \r\nConnection: Keep-Alive\r\n", true, "content-length=1|"),
    ] {
        let found = closing(head);
        assert_eq!((found.2, found.3.as_str()), (stays, said), "{head:?}");
    }
}

#[test]
fn ambiguous_framing_is_rejected() {
    for (rest, expected) in [
        ("Content-Length: 1\r\nContent-Length: 2\r\n", ProtocolError::Length),
        ("Content-Length: 1, 2\r\n", ProtocolError::Length),
        ("Content-Length: +1\r\n", ProtocolError::Length),
        ("Content-Length: \r\n", ProtocolError::Length),
        ("Content-Length: 18446744073709551616\r\n", ProtocolError::Length),
        ("Transfer-Encoding: gzip, chunked\r\n", ProtocolError::Coding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ProtocolError::Coding),
        ("A : 1\r\n", ProtocolError::Head(httparse::Error::HeaderName)),
        (" A: 1\r\n", ProtocolError::Head(httparse::Error::HeaderName)),
        ("A: 1\r\n b\r\n", ProtocolError::Head(httparse::Error::HeaderName)),
    ] {
        assert_eq!(read(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n")), Err(expected), "{rest:?}");
    }
    assert_eq!(read("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(ProtocolError::Coding));
    assert_eq!(read("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Err(ProtocolError::Protocol));
    assert_eq!(read("SSH-2.0-OpenSSH_9.2\r\n"), Err(ProtocolError::Head(httparse::Error::Version)));
    let start = "HTTP/1.1 200 OK\r\nA: ";
    let head = |length: usize| format!("{start}{}", "a".repeat(length - start.len()));
    assert_eq!(read(&head(64 * 1024)), Ok(None));
    assert_eq!(read(&head(64 * 1024 + 1)), Err(ProtocolError::TooLong));
}

#[test]
fn a_reason_is_kept_if_it_is_not_the_usual_one() {
    for (line, expected) in [("200 OK", None), ("200 Fine", Some("Fine")), ("299 ", None)] {
        let mut received = Bytes::from(format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n"));
        let response = parse(&mut received, false).unwrap().unwrap().response;
        let reason = response.extensions().get::<ReasonPhrase>().map(|reason| reason.as_bytes().to_vec());
        assert_eq!(reason.filter(|reason| !reason.is_empty()), expected.map(|text| text.as_bytes().to_vec()), "{line}");
    }
}

#[test]
fn an_incomplete_head_needs_more_bytes() {
    let head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\n";
    for end in 0..head.len() {
        assert_eq!(read(&head[..end]), Ok(None), "{:?}", &head[..end]);
    }
    assert!(read(head).unwrap().is_some());
}

proptest::proptest! {
    #[test]
    fn no_head_panics_and_following_bytes_do_not_change_it(
        lines in proptest::collection::vec("[ -~\t]{0,30}", 0..6),
        rest in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
    ) {
        let head = [&["HTTP/1.1 200 OK".to_owned()], &*lines, &[String::new(), String::new()]].concat().join("\r\n");
        let parse = |bytes: &[u8]| {
            let mut received = Bytes::copy_from_slice(bytes);
            let head = parse(&mut received, false)?;
            Ok(head.map(|head| (head.response.headers().clone(), head.body, head.reusable, received.len())))
        };
        let head_only: Result<_, ProtocolError> = parse(head.as_bytes());
        let with_rest: Result<_, ProtocolError> = parse(&[head.as_bytes(), &rest].concat());
        match (head_only, with_rest) {
            (Ok(Some(head_only)), Ok(Some(with_rest))) => {
                proptest::prop_assert_eq!(&head_only.0, &with_rest.0);
                proptest::prop_assert_eq!((head_only.1, head_only.2), (with_rest.1, with_rest.2));
                proptest::prop_assert_eq!(with_rest.3, head_only.3 + rest.len());
            }
            (head_only, with_rest) => proptest::prop_assert_eq!(head_only, with_rest),
        }
    }
}
