//! Floor of the API proxy: a reverse proxy of HTTP/1 without any feature, written for this on tokio with one thread. It replaces the
//! token and the hop's headers, keeps connections on both sides, and knows requests without a body and responses with a length.
//! `floor_proxy tcp 127.0.0.1:0 UPSTREAM` or `floor_proxy unix PATH UPSTREAM`; prints its address, and ends on SIGTERM.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod counting_allocator;

use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

use counting_allocator::CountingAllocator;

/// The program's allocator without its zeroing, which is part of the measured cost.
#[global_allocator]
static ALLOCATOR: CountingAllocator<mimalloc::MiMalloc> = CountingAllocator(mimalloc::MiMalloc);

thread_local! {
    /// Idle connections to the upstream.
    static IDLE: RefCell<Vec<TcpStream>> = const { RefCell::new(Vec::new()) };
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let [kind, address, upstream] = arguments.as_slice() else {
        return println!("floor_proxy tcp|unix ADDRESS|PATH UPSTREAM");
    };
    let upstream: &'static str = upstream.clone().leak();
    let mut stop = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        () = serve(kind == "unix", address, upstream) => {}
        _ = stop.recv() => counting_allocator::print_counts(),
    }
}

async fn serve(unix: bool, address: &str, upstream: &'static str) {
    if unix {
        let listener = tokio::net::UnixListener::bind(address).unwrap();
        println!("{address}");
        loop {
            tokio::spawn(serve_connection(listener.accept().await.unwrap().0, upstream));
        }
    }
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        tokio::spawn(serve_connection(stream, upstream));
    }
}

async fn serve_connection(mut client: impl AsyncRead + AsyncWrite + Unpin, upstream: &str) -> Result<()> {
    let (mut head, mut rewritten, mut response) = (vec![0; 8 << 10], Vec::with_capacity(1 << 10), vec![0; 16 << 10]);
    let mut filled = 0;
    loop {
        let length = loop {
            if filled > 0
                && let Some(length) = rewrite_head(&head[..filled], upstream, &mut rewritten)?
            {
                break length;
            }
            let count = client.read(&mut head[filled..]).await?;
            if count == 0 {
                return Ok(());
            }
            filled += count;
        };
        head.copy_within(length..filled, 0);
        filled -= length;
        let mut connection = match IDLE.with_borrow_mut(Vec::pop) {
            Some(connection) => connection,
            None => connect(upstream).await?,
        };
        connection.write_all(&rewritten).await?;
        forward_response(&mut connection, &mut client, &mut response).await?;
        IDLE.with_borrow_mut(|idle| idle.push(connection));
    }
}

async fn connect(upstream: &str) -> Result<TcpStream> {
    let connection = TcpStream::connect(upstream).await?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// Writes the head for the upstream. Returns the length of the client's head, or `None` while it is incomplete.
fn rewrite_head(head: &[u8], upstream: &str, rewritten: &mut Vec<u8>) -> Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(head).map_err(Error::other)? else { return Ok(None) };
    rewritten.clear();
    for part in [request.method.unwrap_or(""), " ", request.path.unwrap_or(""), " HTTP/1.1\r\nHost: ", upstream, "\r\n"]
    {
        rewritten.extend_from_slice(part.as_bytes());
    }
    for header in request.headers {
        if !["host", "connection", "x-vault-token"].iter().any(|name| header.name.eq_ignore_ascii_case(name)) {
            for part in [header.name.as_bytes(), b": ", header.value, b"\r\n"] {
                rewritten.extend_from_slice(part);
            }
        }
    }
    rewritten.extend_from_slice(b"X-Vault-Token: hvs.");
    rewritten.extend_from_slice(&[b'x'; 91]);
    rewritten.extend_from_slice(b"\r\n\r\n");
    Ok(Some(length))
}

async fn forward_response(
    upstream: &mut TcpStream,
    client: &mut (impl AsyncWrite + Unpin),
    buffer: &mut [u8],
) -> Result<()> {
    let (mut filled, mut left) = (0, None);
    loop {
        let count = upstream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        if left.is_none() {
            left = response_length(&buffer[..filled])?;
        }
        if let Some(length) = left {
            client.write_all(&buffer[..filled]).await?;
            if length <= filled {
                return Ok(());
            }
            left = Some(length - filled);
            filled = 0;
        }
    }
}

/// Returns the length of a response with its head, or `None` while the head is incomplete.
fn response_length(bytes: &[u8]) -> Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes).map_err(Error::other)? else { return Ok(None) };
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
    Ok(Some(head + length.ok_or(ErrorKind::InvalidData)?))
}
