//! Forwarding between a real listener and a real upstream: what passes, what stays on its hop, and how each failure
//! is told.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use keyward::http::forward::{Downstream, ForwardError, Forwarder, Head, Options, Target, Upstream};
use keyward::http::listen::{Endpoint, Limits, Listener, Observed, Peer, UnixSocket};
use keyward::metrics::{self, Metrics};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::raw::Raw;

/// Callers -> front -> forwarder -> back.
struct Scene {
    folder: TempDir,
    metrics: Metrics,
    servers: JoinSet<()>,
}

/// Time to the head of an answer.
const LIMIT: Duration = Duration::from_secs(10);

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), metrics: Metrics::default(), servers: JoinSet::new() }
    }

    fn with(options: impl FnOnce(&mut Options)) -> Self {
        let mut scene = Self::new();
        scene.serve_back(Limits::default());
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

    fn serve_back(&mut self, limits: Limits) {
        let observed = Some(Observed { metrics: self.metrics.clone(), listener: "back".to_owned() });
        self.servers.spawn(self.bind("back").serve(back, Limits { observed, ..limits }, CancellationToken::new()));
    }

    fn serve_front(&mut self, change: impl FnOnce(&mut Options), limit: Duration) {
        let mut options = Options {
            target: Target::Unix(self.path("back")),
            tls: None,
            connections: 4,
            idle: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
        };
        change(&mut options);
        let forwarder = Forwarder::new(options);
        let service = move |_: Peer, request: Request<Incoming>| {
            let forwarder = forwarder.clone();
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let body = Upstream::Streamed(body);
                let head = Head::new(parts, body.length());
                let again = head.copy();
                match forwarder.send(head, || again.head(), body, limit).await {
                    Ok(answer) => answer.map(Either::Left),
                    Err(error) => told(&error),
                }
            })
        };
        self.servers.spawn(self.bind("front").serve(service, Limits::default(), CancellationToken::new()));
    }

    async fn connect(&self) -> Raw {
        Raw::unix(&self.path("front")).await
    }

    fn open_at_back(&self) -> i64 {
        self.metrics.local_connections.get_or_create(&metrics::Listener { listener: "back".to_owned() }).get()
    }
}

fn told(error: &ForwardError) -> Response<Either<Downstream, Full<Bytes>>> {
    let mut answer = Response::new(Either::Right(Full::from(error.to_string())));
    *answer.status_mut() = error.status();
    answer
}

type BackBody = http_body_util::combinators::UnsyncBoxBody<Bytes, hyper::Error>;

/// Echoes the body at `/echo`, tells the headers that came at `/headers`, answers after a minute at `/slow`, and with
/// a trailer at `/trailer`.
async fn back(_: Peer, request: Request<Incoming>) -> Response<BackBody> {
    let whole = |text: String| Full::from(text).map_err(|never| match never {}).boxed_unsync();
    match request.uri().path() {
        "/echo" => {
            let length = request.headers().get("content-length").cloned();
            let mut answer = Response::new(request.into_body().boxed_unsync());
            if let Some(length) = length {
                answer.headers_mut().insert("x-length", length);
            }
            answer
        }
        "/headers" => {
            let mut lines: Vec<_> =
                request.headers().iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
            lines.sort();
            let mut answer = Response::new(whole(lines.join(" ")));
            let headers = answer.headers_mut();
            headers.insert("connection", HeaderValue::from_static("x-hop"));
            headers.insert("x-hop", HeaderValue::from_static("1"));
            headers.insert("x-end", HeaderValue::from_static("2"));
            answer
        }
        "/slow" => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Response::new(whole("slow".to_owned()))
        }
        "/trailer" => {
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("42"))]);
            let body = whole("body".to_owned()).with_trailers(async { Some(Ok(trailers)) });
            let mut answer = Response::new(body.boxed_unsync());
            answer.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
            answer.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
            answer
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
        let answer = caller.ask(request).await;
        assert_eq!(answer.body, "connection=te host=up te=trailers x-kept=2");
        assert_eq!((answer.header("x-hop"), answer.header("x-end")), (None, Some("2")));
    }
    assert_eq!(scene.open_at_back(), 1, "kept and used again");
}

#[tokio::test]
async fn bodies_stream_both_ways_with_their_framing_made_anew() {
    let scene = Scene::with(|_| {});
    let mut caller = scene.connect().await;
    let large = "x".repeat(300_000);
    let head = format!("POST /echo HTTP/1.1\r\nHost: up\r\nContent-Length: {}\r\n\r\n", large.len());
    let answer = caller.ask(format!("{head}{large}")).await;
    assert_eq!((answer.header("x-length"), answer.body.len()), (Some("300000"), 300_000));
    let chunked = "POST /echo HTTP/1.1\r\nHost: up\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    caller.send(chunked).await;
    let answer = caller.until("0\r\n\r\n").await;
    assert!(answer.contains("transfer-encoding: chunked") && answer.contains("hello"), "{answer}");
    assert!(!answer.contains("x-length"), "{answer}");
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
    let answer = caller.until("x-sum: 42\r\n\r\n").await;
    assert!(answer.contains("trailer: x-sum"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_is_seen_by_the_upstream() {
    let mut scene = Scene::new();
    scene.serve_back(Limits::default());
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
async fn each_failure_has_its_status_and_its_words() {
    let mut absent = Scene::new();
    absent.serve_front(|_| {}, LIMIT);
    let answer = absent.connect().await.ask(get("/")).await;
    assert_eq!((answer.status, answer.body.as_str()), (502, "cannot connect to the upstream"));

    let scene = Scene::with(|options| options.connections = 1);
    let (mut first, mut second) = (scene.connect().await, scene.connect().await);
    first.send(get("/slow")).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let answer = second.ask(get("/")).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "all 1 connections to the upstream are busy"));
    let answer = first.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (504, "the upstream gave no answer within 10s"));
    assert_eq!(second.ask(get("/")).await.body, "quick", "the place is free again");
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_that_the_upstream_closed_costs_no_request() {
    let mut scene = Scene::new();
    scene.serve_back(Limits { idle_timeout: Duration::from_secs(4), ..Limits::default() });
    scene.serve_front(|_| {}, LIMIT);
    let mut caller = scene.connect().await;
    for _ in 0..3 {
        assert_eq!(caller.ask(get("/")).await.body, "quick");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(scene.open_at_back(), 0);
    }
}
