//! Ten thousand blocking queries that wait for one change. `watch floor ADDRESS LENGTH` is a bare hyper server: a GET waits for the next
//! PUT, and its response has this length; it prints its address. `watch wait ADDRESS COUNT GET PUT BODY [HEADER]...` waits on that many
//! connections and prints `waiting`. At the next line of its input it sends one PUT, and prints the times from there to the first, the
//! median and the last response, in microseconds.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::convert::Infallible;
use std::io::BufRead as _;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: keyward_machine::os::ZeroingAllocator = keyward_machine::os::ZeroingAllocator;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match words[..] {
        ["floor", address, length] => runtime.block_on(serve_floor(address, length.parse().unwrap())),
        ["wait", address, count, get, put, body, ref headers @ ..] => {
            let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
            let request = |method: &str, path: &str, body: &str| {
                let length = body.len();
                format!(
                    "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
                )
            };
            let (get, put) = (request("GET", get, ""), request("PUT", put, body));
            runtime.block_on(measure_waiters(address, count.parse().unwrap(), get, put));
        }
        _ => println!("watch floor ADDRESS LENGTH | wait ADDRESS COUNT GET PUT BODY [HEADER]..."),
    }
}

async fn serve_floor(address: &str, length: usize) {
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let (changed, body) = (Arc::new(Notify::new()), Bytes::from(vec![b'x'; length]));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (changed, body) = (Arc::clone(&changed), body.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (changed, body) = (Arc::clone(&changed), body.clone());
            async move {
                if request.method() == Method::GET {
                    changed.notified().await;
                } else {
                    changed.notify_waiters();
                }
                let mut response = Response::new(Full::new(body));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(async move {
            let _ = Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn measure_waiters(address: &str, count: usize, get: String, put: String) {
    let mut waiting = JoinSet::new();
    let get = Arc::new(get);
    for number in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(get.as_bytes()).await.unwrap();
        waiting.spawn(async move {
            read_response(&mut stream).await;
            (stream, Instant::now())
        });
        // A pause, as the kernel's queue of new connections is short.
        if number % 64 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
    println!("waiting");
    tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()).unwrap()).await.unwrap();
    assert!(waiting.try_join_next().is_none(), "a query has a response before the change");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let start = Instant::now();
    stream.write_all(put.as_bytes()).await.unwrap();
    read_response(&mut stream).await;
    let responses = waiting.join_all().await;
    let mut times: Vec<u128> = responses.iter().map(|(_, at)| (*at - start).as_micros()).collect();
    times.sort_unstable();
    println!("first_us={} p50_us={} last_us={}", times[0], times[times.len() / 2], times[times.len() - 1]);
}

/// Reads one complete response.
async fn read_response(stream: &mut TcpStream) {
    let mut bytes = Vec::with_capacity(2048);
    loop {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the connection was closed");
        let Some(head_end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok();
        if bytes.len() >= head_end + 4 + head.lines().find_map(length).unwrap() {
            return;
        }
    }
}
