//! Bodies through the API proxy, in both directions: large ones, slow and early ends, and other features of HTTP/1.

use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::raw::Raw;
use crate::harness::vault::{Proxied, fetch, until};

const HEAD: &str = "Host: localhost\r\nX-Vault-Request: true\r\n";

#[tokio::test]
async fn bodies_of_ten_mebibytes_pass_both_ways() {
    let proxied = Proxied::start();
    let response = fetch(proxied.request("PUT", "up").body(vec![b'u'; 10 << 20])).await;
    assert_eq!((response.status, response.text), (200, (10 << 20).to_string()));
    let pieces = (0..160).map(|_| Ok::<_, std::io::Error>(vec![b'u'; 64 << 10]));
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    assert_eq!(fetch(proxied.request("PUT", "up").body(chunked)).await.text, (10 << 20).to_string());
    let response = proxied.request("GET", "down/10").send().await.unwrap();
    assert_eq!(response.content_length(), Some(10 << 20));
    let mut bytes = 0;
    let mut body = response.bytes_stream();
    while let Some(piece) = body.next().await {
        bytes += piece.unwrap().len();
    }
    assert_eq!(bytes, 10 << 20);
}

#[tokio::test]
async fn a_reader_that_is_slow_holds_the_server_back_and_not_the_other_callers() {
    let proxied = Proxied::start();
    let mut slow = TcpStream::connect(proxied.address).await.unwrap();
    slow.write_all(format!("GET /v1/down/256 HTTP/1.1\r\n{HEAD}\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 1024];
    assert_ne!(slow.read(&mut first).await.unwrap(), 0);
    for _ in 0..20 {
        assert_eq!(proxied.get("a").await.status, 200);
    }
    let sent = proxied.vault.sent();
    assert!(sent < 64 << 20, "{sent} bytes of 256 MiB were taken for a reader that reads nothing");
    drop(slow);
    until(|| proxied.vault.open() == 0).await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_ends_its_call_at_the_server() {
    let proxied = Proxied::start();
    for path in ["never", "half"] {
        let mut caller = TcpStream::connect(proxied.address).await.unwrap();
        caller.write_all(format!("GET /v1/{path} HTTP/1.1\r\n{HEAD}\r\n").as_bytes()).await.unwrap();
        until(|| proxied.vault.open() > 0).await;
        drop(caller);
        until(|| proxied.vault.open() == 0).await;
    }
    assert_eq!(proxied.get("a").await.status, 200);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_whole_request_for_the_server() {
    let proxied = Proxied::start();
    let mut caller = TcpStream::connect(proxied.address).await.unwrap();
    let head = format!("POST /v1/a HTTP/1.1\r\n{HEAD}Content-Length: 1000\r\n\r\nonly this");
    caller.write_all(head.as_bytes()).await.unwrap();
    until(|| proxied.vault.open() > 0).await;
    drop(caller);
    until(|| proxied.vault.open() == 0).await;
    let requests = proxied.vault.requests();
    assert!(
        requests.iter().all(|request| request.body.len() < 1000 && request.header("content-length") == "1000"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn malformed_chunks_are_the_callers_error() {
    let proxied = Proxied::start();
    let mut caller = Raw::tcp(proxied.address).await;
    let response = caller.ask(format!("POST /v1/a HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n")).await;
    assert_eq!(response.status, 400, "{response:?}");
    assert!(response.error().starts_with("the request body did not arrive completely"), "{response:?}");
    assert_eq!(proxied.get("a").await.status, 200);
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let proxied = Proxied::start();
    let mut caller = Raw::tcp(proxied.address).await;
    caller.send(format!("PUT /v1/a HTTP/1.1\r\n{HEAD}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")).await;
    assert_eq!(caller.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(caller.ask("body").await.status, 200);
    let request = proxied.vault.last();
    assert_eq!((request.body.as_ref(), request.header("expect")), (&b"body"[..], ""));
    // The body of a refused request is discarded.
    caller.send(format!("PUT /v1/sys/seal HTTP/1.1\r\n{HEAD}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")).await;
    assert_eq!(caller.answer().await.unwrap().status, 403);
}

#[tokio::test]
async fn hop_by_hop_headers_are_removed_and_heads_and_trailers_pass() {
    let proxied = Proxied::start();
    let mut caller = Raw::tcp(proxied.address).await;
    caller.send(format!("HEAD /v1/down/1 HTTP/1.1\r\n{HEAD}\r\n")).await;
    let head = caller.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-length: 1048576"), "{head}");
    caller.send(format!("GET /v1/trailer HTTP/1.1\r\n{HEAD}TE: trailers\r\n\r\n")).await;
    let response = caller.until("x-sum: 42\r\n\r\n").await;
    assert!(response.contains("trailer: x-sum"), "{response}");
    let hop = "Connection: x-mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nX-Kept: 2\r\n";
    assert_eq!(caller.ask(format!("GET /v1/a HTTP/1.1\r\n{HEAD}{hop}\r\n")).await.status, 200);
    let request = proxied.vault.last();
    assert_eq!((request.header("x-mine"), request.header("keep-alive"), request.header("x-kept")), ("", "", "2"));
    assert_eq!(request.token(), "tok1");
}

#[tokio::test]
async fn http_1_0_requests_are_refused_with_a_message() {
    let proxied = Proxied::start();
    let response = Raw::tcp(proxied.address).await.ask(format!("GET /v1/a HTTP/1.0\r\n{HEAD}\r\n")).await;
    assert_eq!((response.status, response.error().as_str()), (505, "HTTP/1.1 is required"));
}

#[tokio::test]
async fn the_unix_socket_serves_the_same() {
    let proxied = Proxied::start();
    let mut caller = Raw::unix(&proxied.socket).await;
    let response = caller.ask(format!("GET /v1/secret/data/web HTTP/1.1\r\n{HEAD}\r\n")).await;
    assert_eq!((response.status, proxied.vault.last().token()), (200, "tok1"));
}

#[tokio::test]
async fn requests_in_flight_end_well_when_the_listener_stops() {
    let mut proxied = Proxied::start();
    let mut caller = TcpStream::connect(proxied.address).await.unwrap();
    caller.write_all(format!("GET /v1/down/16 HTTP/1.1\r\n{HEAD}\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 1024];
    let mut bytes = caller.read(&mut first).await.unwrap();
    proxied.stop.cancel();
    loop {
        match caller.read(&mut [0; 8192]).await.unwrap() {
            0 => break,
            more => bytes += more,
        }
    }
    assert!(bytes > 16 << 20, "{bytes} bytes of 16 MiB and a head");
    assert!(TcpStream::connect(proxied.address).await.is_err() || proxied.servers.try_join_next().is_some());
}
