use super::*;

#[tokio::test(start_paused = true)]
async fn each_phase_has_its_own_timeout() {
    let limits = ListenerLimits::default();
    let connection = ConnectionState::new(Instant::now(), Arc::default());
    let left =
        |connection: &ConnectionState| connection.deadline(&limits, connection.now()).map(|end| end - connection.now());
    assert_eq!(left(&connection), Some(2000));
    tokio::time::advance(Duration::from_secs(1)).await;
    connection.record_bytes();
    assert_eq!(left(&connection), Some(4000), "a head's time counts from the start of a fresh connection");
    assert!(!connection.begin_wait());
    connection.begin_request(Some(0), true);
    assert!(!connection.begin_wait());
    assert_eq!(left(&connection), None);
    connection.finish_response();
    assert_eq!(connection.phase(), (Phase::Idle, 2), "it was accepted first, and answered second");
    assert!(!connection.begin_wait());
    assert_eq!(left(&connection), Some(60_000), "from when the sweep sees it");
    tokio::time::advance(Duration::from_secs(50)).await;
    connection.record_bytes();
    assert!(connection.begin_wait(), "a head that comes in pieces asks for a sweep");
    assert_eq!(left(&connection), Some(5000));
    connection.begin_request(Some(0), true);
    connection.record_blocked_write();
    assert_eq!(left(&connection), Some(30_000));
    connection.record_write();
    assert_eq!(left(&connection), None);
}

#[tokio::test]
async fn a_body_has_come_once_its_length_or_its_last_chunk_was_received() {
    let has_body = |length: Option<u64>, with_head: &[u8], later: &[&[u8]]| {
        let connection = ConnectionState::new(Instant::now(), Arc::default());
        connection.record_framing(Framing::Plain, with_head);
        connection.begin_request(length, true);
        for bytes in later {
            connection.record_body(bytes);
        }
        connection.has_body()
    };
    assert!(has_body(Some(0), b"", &[]) && has_body(Some(2), b"ab", &[]) && has_body(Some(4), b"ab", &[b"c", b"d"]));
    assert!(has_body(Some(2), b"abGET / HTTP/1.1\r\n", &[]), "another request has come too");
    assert!(!has_body(Some(2), b"", &[]) && !has_body(Some(4), b"ab", &[b"c"]));
    assert!(has_body(None, b"0\r\n\r\n", &[]) && has_body(None, b"1\r\na\r\n0\r", &[b"\n", b"\r", b"\n"]));
    assert!(has_body(None, b"1\r\na\r\n0\r\n", &[b"A: b\r\n\r\n"]), "with a trailer");
    assert!(
        !has_body(None, b"", &[])
            && !has_body(None, b"1\r\na\r\n", &[b"0\r\n"])
            && !has_body(None, b"\r\n", &[b"a\r\n"])
    );

    // Bytes that were counted before do not count for the next request.
    let connection = ConnectionState::new(Instant::now(), Arc::default());
    for (with_head, expected) in [(b"abcd".as_slice(), true), (b"", false)] {
        connection.record_framing(Framing::Plain, with_head);
        connection.begin_request(Some(4), true);
        assert_eq!(connection.has_body(), expected);
        connection.finish_response();
    }
    connection.begin_request(Some(4), false);
    assert!(connection.has_body(), "nothing is known of a request whose head was not scanned");
}

#[tokio::test]
async fn a_head_that_may_have_begun_with_the_request_before_it_is_not_scanned() {
    let next = |length: Option<u64>, received: &[u8], counted: bool| {
        let connection = ConnectionState::new(Instant::now(), Arc::default());
        assert_eq!(connection.record_bytes(), ReceivedPart::Begin);
        connection.record_framing(Framing::Plain, received);
        connection.begin_request(length, counted);
        connection.finish_response();
        connection.record_bytes()
    };
    for (length, received) in [(Some(0), b"".as_slice()), (Some(2), b"ab"), (None, b"0\r\n\r\n")] {
        assert_eq!(next(length, received, true), ReceivedPart::Begin, "{received:?}");
    }
    for (length, received) in [(Some(0), b"POST".as_slice()), (Some(2), b"abPOST"), (None, b"0\r\n\r\nPOST")] {
        assert_eq!(next(length, received, true), ReceivedPart::BegunHead, "{received:?}");
    }
    assert_eq!(
        next(Some(0), b"", false),
        ReceivedPart::BegunHead,
        "more than one request may have come with the first"
    );
}
