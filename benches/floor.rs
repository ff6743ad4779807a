//! Floor of a token read: a bare hyper server with the same runtime, flush and nodelay, and a response of the same size.
//! `floor tcp 127.0.0.1:0 LENGTH` or `floor unix PATH LENGTH`; prints its address, and ends on SIGTERM.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod counting_allocator;

use std::convert::Infallible;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};

use counting_allocator::CountingAllocator;

/// The program's allocator without its zeroing, which is part of the measured cost.
#[global_allocator]
static ALLOCATOR: CountingAllocator<mimalloc::MiMalloc> = CountingAllocator(mimalloc::MiMalloc);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let [kind, address, length] = arguments.as_slice() else { return println!("floor tcp|unix ADDRESS|PATH LENGTH") };
    let body = Bytes::from(vec![b'x'; length.parse().unwrap()]);
    let mut stop = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        () = serve(kind == "unix", address, body) => {}
        _ = stop.recv() => counting_allocator::print_counts(),
    }
}

async fn serve(unix: bool, address: &str, body: Bytes) {
    if unix {
        let listener = tokio::net::UnixListener::bind(address).unwrap();
        println!("{address}");
        loop {
            spawn_connection(listener.accept().await.unwrap().0, body.clone());
        }
    }
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        spawn_connection(stream, body.clone());
    }
}

fn spawn_connection<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: I, body: Bytes) {
    let service = service_fn(move |_| {
        let mut response = Response::new(Full::new(body.clone()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        async { Ok::<_, Infallible>(response) }
    });
    tokio::spawn(async move {
        // A caller that disconnects is not a failure of this server.
        let _ = Builder::new().serve_connection(TokioIo::new(stream), service).await;
    });
}
