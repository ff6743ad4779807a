//! Load generator: keep-alive HTTP/1 over TCP and unix sockets on a fixed number of connections, each of which sends its next request
//! when the last response is complete. One thread and one buffer: it must cost less than any server that it measures.
//!
//! `load tcp|unix ADDRESS|PATH --connections N (--seconds S | --requests N) [--pid PID] [--header LINE]... [--path P]` prints one line:
//! requests, length of a body, requests per second, latencies in microseconds, and with `--pid` the server's CPU microseconds per
//! request (of all its threads). With `--seconds`, the time starts when each connection has its first response.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    missing_docs
)]

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::epoll;

struct Load {
    unix: bool,
    address: String,
    connections: usize,
    seconds: Option<f64>,
    /// Requests per connection.
    requests: Option<usize>,
    pid: Option<u32>,
    request: Vec<u8>,
}

struct Connection {
    stream: OwnedFd,
    sent: Instant,
    responses: usize,
    /// Bytes that are missing of a response that has begun.
    missing: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(load) = parse(&arguments) else {
        return println!("load tcp|unix ADDRESS|PATH --connections N (--seconds S | --requests N) [--pid PID]");
    };
    run(&load);
}

fn parse(arguments: &[String]) -> Option<Load> {
    let (unix, address) = (arguments.first()? == "unix", arguments.get(1)?.clone());
    let mut load =
        Load { unix, address, connections: 1, seconds: None, requests: None, pid: None, request: Vec::new() };
    let (mut path, mut headers) = ("/agent/v1/token".to_owned(), vec!["X-Vault-Request: true".to_owned()]);
    for pair in arguments[2..].chunks(2) {
        let value = pair.get(1)?;
        match pair[0].as_str() {
            "--connections" => load.connections = value.parse().ok()?,
            "--seconds" => load.seconds = Some(value.parse().ok()?),
            "--requests" => load.requests = Some(value.parse::<usize>().ok()?.div_ceil(load.connections)),
            "--pid" => load.pid = Some(value.parse().ok()?),
            "--path" => path.clone_from(value),
            "--header" => headers.push(value.clone()),
            _ => return None,
        }
    }
    let headers = headers.join("\r\n");
    load.request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n").into_bytes();
    Some(load)
}

fn run(load: &Load) {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let mut connections: Vec<Connection> = (0..load.connections).map(|index| connect(load, &poll, index)).collect();
    let (mut buffer, mut events) = (vec![0; 256 << 10], Vec::with_capacity(1024));
    let mut latencies: Vec<u32> = Vec::with_capacity(1 << 20);
    let (mut response, mut body, mut open) = (0, 0, load.connections);
    let mut unanswered = if load.seconds.is_some() { load.connections } else { 0 };
    let (mut started, mut nanos, mut duration) = (Instant::now(), load.pid.map(cpu_nanos), None);
    while open > 0 {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        for event in events.drain(..) {
            let connection = &mut connections[usize::try_from(event.data.u64()).unwrap()];
            let count = rustix::io::read(&connection.stream, &mut buffer).unwrap();
            assert_ne!(count, 0, "the server closed the connection");
            if connection.missing == 0 {
                // Almost all responses are as long as the one before, and arrive whole.
                if count != response {
                    (response, body) = parse_lengths(&buffer[..count]);
                }
                connection.missing = response;
            }
            connection.missing = connection.missing.checked_sub(count).unwrap();
            if connection.missing > 0 {
                continue;
            }
            let now = Instant::now();
            connection.responses += 1;
            if unanswered == 0 && duration.is_none() {
                latencies.push(u32::try_from((now - connection.sent).as_micros()).unwrap());
            } else if unanswered > 0 && connection.responses == 1 {
                unanswered -= 1;
                (started, nanos) = (now, load.pid.map(cpu_nanos));
            }
            let elapsed = now - started;
            if unanswered == 0 && duration.is_none() && load.seconds.is_some_and(|it| elapsed.as_secs_f64() >= it) {
                duration = Some((elapsed, load.pid.map(cpu_nanos)));
            }
            if duration.is_some() || load.requests == Some(connection.responses) {
                open -= 1;
            } else {
                connection.sent = now;
                rustix::io::write(&connection.stream, &load.request).unwrap();
            }
        }
    }
    let (duration, nanos_after) = duration.unwrap_or_else(|| (started.elapsed(), load.pid.map(cpu_nanos)));
    print_figures(latencies, body, duration, nanos_after.zip(nanos).map(|(after, before)| after - before));
}

/// Connects and sends the first request: a server may close connections that send nothing.
fn connect(load: &Load, poll: &OwnedFd, index: usize) -> Connection {
    let stream = if load.unix {
        OwnedFd::from(UnixStream::connect(&load.address).unwrap())
    } else {
        let stream = TcpStream::connect(&load.address).unwrap();
        stream.set_nodelay(true).unwrap();
        OwnedFd::from(stream)
    };
    epoll::add(poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN).unwrap();
    rustix::io::write(&stream, &load.request).unwrap();
    Connection { stream, sent: Instant::now(), responses: 0, missing: 0 }
}

fn print_figures(mut latencies: Vec<u32>, body: usize, duration: Duration, nanos: Option<u64>) {
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(0);
    print!("requests={} body={body} rps={:.0}", latencies.len(), latencies.len() as f64 / duration.as_secs_f64());
    print!(" p50_us={} p99_us={} max_us={}", percentile(50), percentile(99), latencies.last().copied().unwrap_or(0));
    if let Some(nanos) = nanos {
        print!(" cpu_us={:.2}", nanos as f64 / 1000.0 / latencies.len() as f64);
    }
    println!();
}

/// Parses the lengths of a response and of its body, of the bytes of its first read, which hold the head.
fn parse_lengths(bytes: &[u8]) -> (usize, usize) {
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let length: Option<usize> =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length = length.unwrap_or(0);
    (head_end + length, length)
}

/// CPU time of a process's threads, in nanoseconds: the first field of `schedstat`.
fn cpu_nanos(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(path.join("schedstat")).unwrap();
    threads.map(|it| read(it.unwrap().path()).split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}
