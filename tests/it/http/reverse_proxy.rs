//! Forwarding between a real listener and a real upstream: headers that pass, hop-by-hop headers, and the response to
//! each failure.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use keyward_http::reverse_proxy::{
    ForwardError, Forwarder, ForwarderOptions, RequestBody, RequestHead, RequestLine, ResponseBody, UpstreamAddress,
};
use keyward_http::server::{
    Endpoint, HttpMetrics, IncomingBody, IncomingBodyError, Listener, ListenerLabel, ListenerLimits, ListenerMetrics,
    Peer, UnixSocket,
};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::metrics::Metrics;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::raw::Raw;

/// Callers -> front -> forwarder -> back.
struct Scene {
    folder: TempDir,
    metrics: Metrics,
    servers: JoinSet<()>,
}

/// Time to the head of a response.
const LIMIT: Duration = Duration::from_secs(10);

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), metrics: Metrics::default(), servers: JoinSet::new() }
    }

    fn with(options: impl FnOnce(&mut ForwarderOptions)) -> Self {
        let mut scene = Self::new();
        scene.serve_back(ListenerLimits::default());
        scene.serve_front(options, LIMIT);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bind(&self, name: &str) -> Listener {
        let socket = UnixSocket { path: self.path(name), mode: 0o600, owner: None, group: None };
        Listener::bind(&Endpoint::Unix(socket)).unwrap()
    }

    fn serve_back(&mut self, limits: ListenerLimits) {
        let listener_metrics = Some(ListenerMetrics { metrics: self.metrics.clone(), listener: "back".to_owned() });
        self.servers.spawn(self.bind("back").serve(
            back,
            ListenerLimits { listener_metrics, ..limits },
            CancellationToken::new(),
        ));
    }

    fn serve_front(&mut self, change: impl FnOnce(&mut ForwarderOptions), limit: Duration) {
        let mut options = ForwarderOptions {
            target: UpstreamAddress::Unix(self.path("back")),
            tls: None,
            connections: 8,
            idle: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            body_idle: None,
            recorder: None,
        };
        change(&mut options);
        let forwarder = Forwarder::new(options);
        let service = move |peer: Peer, request: Request<IncomingBody>| {
            let forwarder = forwarder.clone();
            Box::pin(async move {
                match forward(&forwarder, peer, request, limit).await {
                    Ok(response) => response.map(Either::Left),
                    Err(error) => error_response(&error),
                }
            })
        };
        self.servers.spawn(self.bind("front").serve(service, ListenerLimits::default(), CancellationToken::new()));
    }

    async fn connect(&self) -> Raw {
        Raw::unix(&self.path("front")).await
    }

    fn open_at_back(&self) -> i64 {
        self.metrics
            .get::<HttpMetrics>()
            .connections
            .get_or_create(&ListenerLabel { listener: "back".to_owned() })
            .get()
    }
}

/// Forwards a request as it comes, to the host `up`.
pub(super) async fn forward(
    forwarder: &Forwarder,
    peer: Peer,
    request: Request<IncomingBody>,
    limit: Duration,
) -> Result<Response<ResponseBody>, ForwardError> {
    let (parts, body) = request.into_parts();
    let body = RequestBody::Streamed(body);
    let host = HeaderValue::from_static("up");
    let target = parts.uri.path_and_query().unwrap();
    let line = RequestLine { method: &parts.method, prefix: "", target, host: &host };
    let head = RequestHead::new(line, &parts.headers, |_| true, &body);
    forwarder.send(peer.group(), &head, body, limit).await
}

fn error_response(error: &ForwardError) -> Response<Either<ResponseBody, Full<Bytes>>> {
    let mut response = Response::new(Either::Right(Full::from(format_chain(error))));
    *response.status_mut() = error.status();
    response
}

type BackBody = http_body_util::combinators::UnsyncBoxBody<Bytes, IncomingBodyError>;

/// Echoes the body at `/echo`, counts it at `/count`, sends half of one at `/half`, returns the received headers at
/// `/headers`, answers after a minute at `/slow`, and with
/// a trailer at `/trailer`.
async fn back(_: Peer, request: Request<IncomingBody>) -> Response<BackBody> {
    let whole = |text: String| Full::from(text).map_err(|never| match never {}).boxed_unsync();
    match request.uri().path() {
        "/echo" => {
            let length = request.headers().get("content-length").cloned();
            let mut response = Response::new(request.into_body().boxed_unsync());
            if let Some(length) = length {
                response.headers_mut().insert("x-length", length);
            }
            response
        }
        "/count" => {
            let body = request.into_body().collect().await;
            Response::new(whole(body.map_or(0, |body| body.to_bytes().len()).to_string()))
        }
        "/half" => {
            let piece = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"half")))]);
            let rest = futures_util::stream::pending::<Result<Frame<Bytes>, IncomingBodyError>>();
            Response::new(StreamBody::new(futures_util::StreamExt::chain(piece, rest)).boxed_unsync())
        }
        "/headers" => {
            let mut lines: Vec<_> =
                request.headers().iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
            lines.sort();
            let mut response = Response::new(whole(lines.join(" ")));
            let headers = response.headers_mut();
            headers.insert("connection", HeaderValue::from_static("x-hop"));
            headers.insert("x-hop", HeaderValue::from_static("1"));
            headers.insert("x-end", HeaderValue::from_static("2"));
            response
        }
        "/slow" => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Response::new(whole("slow".to_owned()))
        }
        "/trailer" => {
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("42"))]);
            let body = whole("body".to_owned()).with_trailers(async { Some(Ok(trailers)) });
            let mut response = Response::new(body.boxed_unsync());
            response.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
            response.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
            response
        }
        _ => Response::new(whole("quick".to_owned())),
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: up\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn one_connection_serves_one_caller_after_the_other_and_headers_of_a_hop_stay_on_it() {
    let scene = Scene::with(|_| {});
    let mut caller = scene.connect().await;
    let request = "GET /headers HTTP/1.1\r\nHost: up\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n\
                   Proxy-Authorization: secret\r\nTE: trailers\r\nX-Kept: 2\r\n\r\n";
    for _ in 0..10 {
        let response = caller.ask(request).await;
        assert_eq!(response.body, "connection=te host=up te=trailers x-kept=2");
        assert_eq!((response.header("x-hop"), response.header("x-end")), (None, Some("2")));
    }
    assert_eq!(scene.open_at_back(), 1, "kept and used again");
}

#[tokio::test]
async fn bodies_stream_both_ways_with_their_framing_made_anew() {
    let scene = Scene::with(|_| {});
    let mut caller = scene.connect().await;
    let large = "x".repeat(300_000);
    let head = format!("POST /echo HTTP/1.1\r\nHost: up\r\nContent-Length: {}\r\n\r\n", large.len());
    let response = caller.ask(format!("{head}{large}")).await;
    assert_eq!((response.header("x-length"), response.body.len()), (Some("300000"), 300_000));
    // A connection closes if its response begins before all of the request has come.
    let mut caller = scene.connect().await;
    let chunked = "POST /echo HTTP/1.1\r\nHost: up\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    caller.send(chunked).await;
    let response = caller.until("0\r\n\r\n").await;
    assert!(response.contains("transfer-encoding: chunked") && response.contains("hello"), "{response}");
    assert!(!response.contains("x-length"), "{response}");
    assert_eq!(
        caller.ask("POST /echo HTTP/1.1\r\nHost: up\r\nContent-Length: 0\r\n\r\n").await.header("x-length"),
        Some("0")
    );
    caller.send("HEAD / HTTP/1.1\r\nHost: up\r\n\r\n").await;
    let head_only = caller.until("\r\n\r\n").await;
    assert!(head_only.contains("content-length: 5"), "{head_only}");
    assert_eq!(scene.open_at_back(), 1, "all went over one connection");
}

#[tokio::test]
async fn a_trailer_reaches_a_caller_that_takes_trailers() {
    let scene = Scene::with(|_| {});
    let mut caller = scene.connect().await;
    caller.send("GET /trailer HTTP/1.1\r\nHost: up\r\nTE: trailers\r\n\r\n").await;
    let response = caller.until("x-sum: 42\r\n\r\n").await;
    assert!(response.contains("trailer: x-sum"), "{response}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_is_seen_by_the_upstream() {
    let mut scene = Scene::new();
    scene.serve_back(ListenerLimits::default());
    scene.serve_front(|_| {}, Duration::from_mins(10));
    let mut caller = scene.connect().await;
    caller.send(get("/slow")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.open_at_back(), 1);
    drop(caller);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.open_at_back(), 0, "a minute before its answer");
}

#[tokio::test(start_paused = true)]
async fn each_failure_has_its_status_and_message() {
    let mut absent = Scene::new();
    absent.serve_front(|_| {}, LIMIT);
    let response = absent.connect().await.ask(get("/")).await;
    assert_eq!(response.status, 502);
    let there = format!("cannot connect to unix socket {}: ", absent.path("back").display());
    assert!(response.body.starts_with(&there), "{response:?}");

    let scene = Scene::with(|options| options.connections = 1);
    let (mut first, mut second) = (scene.connect().await, scene.connect().await);
    first.send(get("/slow")).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let response = second.ask(get("/")).await;
    assert_eq!((response.status, response.body.as_str()), (503, "all 1 connections to the upstream are busy"));
    let response = first.answer().await.unwrap();
    assert_eq!((response.status, response.body.as_str()), (504, "no response from the upstream within 10s"));
    assert_eq!(second.ask(get("/")).await.body, "quick", "the place is free again");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_closed_by_the_upstream_fails_no_request() {
    let mut scene = Scene::new();
    scene.serve_back(ListenerLimits { idle_timeout: Duration::from_secs(4), ..ListenerLimits::default() });
    scene.serve_front(|_| {}, LIMIT);
    let mut caller = scene.connect().await;
    for _ in 0..3 {
        assert_eq!(caller.ask(get("/")).await.body, "quick");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(scene.open_at_back(), 0);
    }
}

/// An upstream that sends these texts, one per request, byte by byte, and closes the connection after the
/// last ones of a connection.
fn serve_texts(scene: &mut Scene, connections: &'static [&'static [&'static str]]) {
    let listener = UnixListener::bind(scene.path("back")).unwrap();
    scene.servers.spawn(async move {
        for responses in connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            // It may be closed before everything is sent.
            let _ = send_answers(&mut stream, responses).await;
        }
    });
}

async fn send_answers(stream: &mut UnixStream, responses: &[&str]) -> std::io::Result<()> {
    for answer in responses {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        for byte in answer.as_bytes() {
            stream.write_all(&[*byte]).await?;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Decodes the chunks of a response body.
fn unchunked(response: &str) -> String {
    let mut rest = response.split_once("\r\n\r\n").unwrap().1;
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Some((chunk, after)) = after.split_at_checked(usize::from_str_radix(size, 16).unwrap()) else { break };
        whole.push_str(chunk);
        rest = after.trim_start_matches("\r\n");
    }
    whole
}

fn saying(connections: &'static [&'static [&'static str]]) -> Scene {
    let mut scene = Scene::new();
    serve_texts(&mut scene, connections);
    scene.serve_front(|_| {}, LIMIT);
    scene
}

#[tokio::test]
async fn an_answer_that_comes_byte_by_byte_is_whole_and_interim_ones_are_passed_over() {
    let scene = saying(&[&[
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 Fine\r\nContent-Length: 5\r\n\r\nfirst",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Sum: 42\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
    ]]);
    let mut caller = scene.connect().await;
    let response = caller.ask(get("/")).await;
    assert_eq!((response.body.as_str(), response.header("link")), ("first", None));
    assert!(response.head.starts_with("HTTP/1.1 200 Fine\r\n"), "{}", response.head);
    caller.send(get("/")).await;
    let chunks = caller.until("0\r\n\r\n").await;
    assert!(chunks.contains("transfer-encoding: chunked"), "{chunks}");
    assert_eq!(unchunked(&chunks), "abcde");
    assert_eq!(caller.ask(get("/")).await.status, 204);
    caller.send(get("/")).await;
    let rest = caller.until("0\r\n\r\n").await;
    assert_eq!(unchunked(&rest), "until the end");
}

#[tokio::test]
async fn bytes_after_a_response_reach_no_other_caller() {
    const MINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine";
    const THERE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere";
    let scene = saying(&[
        &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nothers"],
        &["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nthird\r\n0\r\n\r\n", THERE],
        &[MINE],
    ]);
    assert_eq!(scene.connect().await.ask(get("/")).await.body, "first");
    let mut caller = scene.connect().await;
    caller.send(get("/")).await;
    let response = caller.until("0\r\n\r\n").await;
    assert!(!response.contains("content-length"), "{response}");
    assert_eq!(unchunked(&response), "third");
    // The connection ends the body in two ways: it is not reused, though the upstream waits there.
    assert_eq!(caller.ask(get("/")).await.body, "mine");
}

#[tokio::test]
async fn invalid_responses_are_reported_and_not_forwarded() {
    let scene = saying(&[
        &["SSH-2.0-OpenSSH_9.2\r\n"],
        &["HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
        &["HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
        &["HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n"],
        &["HTTP/1.1 200 OK\r\nContent-Le"],
    ]);
    let mut caller = scene.connect().await;
    for cause in [
        "the upstream response is not HTTP/1",
        "invalid or contradictory Content-Length in the upstream response",
        "unsupported Transfer-Encoding in the upstream response",
        "the upstream switched protocols without a request",
        "the upstream closed the connection",
    ] {
        let response = caller.ask(get("/")).await;
        assert_eq!(response.status, 502);
        assert!(
            response.body.starts_with("incomplete or invalid response from the upstream: ")
                && response.body.contains(cause),
            "{response:?}"
        );
    }
}

#[tokio::test]
async fn a_truncated_response_is_truncated_for_the_caller_too() {
    for answer in [
        &["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"] as &'static [&'static str],
        &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"],
        &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense\r\n"],
    ] {
        let scene = saying(Box::leak(Box::new([answer])));
        let mut caller = scene.connect().await;
        caller.send(get("/")).await;
        let response = caller.rest().await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        let body = if response.contains("content-length") {
            response.split("\r\n\r\n").nth(1).unwrap().to_owned()
        } else {
            unchunked(&response)
        };
        assert_eq!(body, "half", "{response}");
        assert!(!response.ends_with("0\r\n\r\n"), "{response}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_wait_for_the_requests_body_is_handed_on() {
    let scene = saying(&[
        &[
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere",
        ],
        &["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"],
    ]);
    let mut caller = scene.connect().await;
    caller.send("POST / HTTP/1.1\r\nHost: up\r\nContent-Length: 1000000000\r\n\r\n").await;
    caller.send("x".repeat(100_000)).await;
    let response = caller.answer().await.unwrap();
    assert_eq!((response.status, response.body.as_str()), (413, "big"));
    // Half a request is on that connection: the next one takes another.
    assert_eq!(scene.connect().await.ask(get("/")).await.body, "next");
}

#[tokio::test(start_paused = true)]
async fn a_request_body_that_is_too_slow_is_ended() {
    let mut scene = Scene::new();
    scene.serve_back(ListenerLimits::default());
    scene.serve_front(|_| {}, Duration::from_mins(2));
    let head = "POST /count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    // Nothing after the first byte; a byte every five seconds.
    for pieces in [1, 7] {
        let (mut caller, started) = (scene.connect().await, Instant::now());
        caller.send(head).await;
        for _ in 0..pieces {
            caller.send("1\r\nx\r\n").await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let response = caller.answer().await.unwrap();
        let message = "the request body did not arrive completely: the request body arrived too slowly";
        assert_eq!((response.status, response.body.as_str()), (408, message));
        assert!((30..=35).contains(&started.elapsed().as_secs()), "{pieces} pieces, {:?}", started.elapsed());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.open_at_back(), 0, "no connection is held any more");

    // One that moves is waited for, however long it takes.
    let mut caller = scene.connect().await;
    caller.send(head).await;
    let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..60 {
        caller.send(&piece).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    let response = caller.ask("0\r\n\r\n").await;
    assert_eq!((response.status, response.body.as_str()), (200, "983040"));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_response_body_ends_if_a_limit_is_set() {
    let scene = Scene::with(|options| options.body_idle = Some(Duration::from_secs(20)));
    let (mut caller, started) = (scene.connect().await, Instant::now());
    caller.send(get("/half")).await;
    let response = caller.rest().await;
    assert!(response.contains("half") && !response.contains("\r\n0\r\n"), "{response}");
    assert_eq!(started.elapsed().as_secs(), 20);
}
