//! Load generator: keep-alive HTTP/1 over TCP and unix sockets on a fixed number of connections. It sends as fast as the server
//! responds, or at a fixed rate. Latencies count from the scheduled time of a request.
//!
//! `load tcp|unix ADDRESS|PATH --connections N (--seconds S | --requests N) [--rate R] [--pid PID] [--header LINE]... [--path P] [--lengths vary]`
//! prints one line: requests, requests per second, latencies in microseconds, and with `--pid` the server's CPU
//! microseconds per request (from `/proc/PID/stat`, whose unit is 10 ms). All responses are as long as the first one, unless
//! `--lengths vary` is passed.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    missing_docs
)]

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::{JoinSet, LocalSet};

struct Load {
    unix: bool,
    address: String,
    connections: usize,
    seconds: Option<f64>,
    /// Requests per connection.
    requests: Option<usize>,
    rate: Option<f64>,
    pid: Option<u32>,
    request: Vec<u8>,
    /// True if responses differ in length, so that the head of each is parsed.
    varying: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(load) = parse(&arguments) else {
        return println!(
            "load tcp|unix ADDRESS|PATH --connections N (--seconds S | --requests N) [--rate R] [--pid PID]"
        );
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let load = Rc::new(load);
    let ticks_before = load.pid.map(cpu_ticks);
    let started = Instant::now();
    let (mut latencies, body) = LocalSet::new().block_on(&runtime, run(Rc::clone(&load), started));
    let duration = started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(0);
    print!("requests={} body={body} rps={:.0}", latencies.len(), latencies.len() as f64 / duration);
    print!(" p50_us={} p99_us={} max_us={}", percentile(50), percentile(99), latencies.last().copied().unwrap_or(0));
    if let (Some(pid), Some(before)) = (load.pid, ticks_before) {
        let micros = (cpu_ticks(pid) - before) as f64 * 10_000.0;
        print!(" cpu_us={:.2}", micros / latencies.len() as f64);
    }
    println!();
}

fn parse(arguments: &[String]) -> Option<Load> {
    let (unix, address) = (arguments.first()? == "unix", arguments.get(1)?.clone());
    let mut load = Load {
        unix,
        address,
        connections: 1,
        seconds: None,
        requests: None,
        rate: None,
        pid: None,
        request: Vec::new(),
        varying: false,
    };
    let (mut path, mut headers) = ("/agent/v1/token".to_owned(), vec!["X-Vault-Request: true".to_owned()]);
    for pair in arguments[2..].chunks(2) {
        let value = pair.get(1)?;
        match pair[0].as_str() {
            "--connections" => load.connections = value.parse().ok()?,
            "--seconds" => load.seconds = Some(value.parse().ok()?),
            "--requests" => load.requests = Some(value.parse::<usize>().ok()?.div_ceil(load.connections)),
            "--rate" => load.rate = Some(value.parse().ok()?),
            "--pid" => load.pid = Some(value.parse().ok()?),
            "--lengths" => load.varying = value == "vary",
            "--path" => path.clone_from(value),
            "--header" => headers.push(value.clone()),
            _ => return None,
        }
    }
    let headers = headers.join("\r\n");
    load.request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n").into_bytes();
    Some(load)
}

/// Returns the latencies of all requests in microseconds, and the length of a body.
async fn run(load: Rc<Load>, started: Instant) -> (Vec<u64>, usize) {
    let mut tasks = JoinSet::new();
    for index in 0..load.connections {
        let load = Rc::clone(&load);
        tasks.spawn_local(async move {
            if load.unix {
                let stream = tokio::net::UnixStream::connect(&load.address).await.unwrap();
                run_connection(&load, index, started, stream).await
            } else {
                let stream = tokio::net::TcpStream::connect(&load.address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                run_connection(&load, index, started, stream).await
            }
        });
    }
    let (mut latencies, mut body) = (Vec::new(), 0);
    while let Some(result) = tasks.join_next().await {
        let (connection_latencies, length) = result.unwrap();
        latencies.extend(connection_latencies);
        body = length;
    }
    (latencies, body)
}

async fn run_connection(
    load: &Load,
    index: usize,
    started: Instant,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> (Vec<u64>, usize) {
    let end = load.seconds.map(|seconds| started + Duration::from_secs_f64(seconds));
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut buffer = vec![0; 64 * 1024];
    let (mut response_length, mut body_length) = (0, 0);
    for round in 0.. {
        let mut due = Instant::now();
        if let Some(rate) = load.rate {
            due = started + Duration::from_secs_f64((round * load.connections + index) as f64 / rate);
            tokio::time::sleep_until(due.into()).await;
        }
        if end.is_some_and(|end| due >= end) || load.requests.is_some_and(|requests| round >= requests) {
            break;
        }
        stream.write_all(&load.request).await.unwrap();
        if load.varying {
            response_length = 0;
        }
        let mut filled = 0;
        loop {
            // Once the length is known, the body is counted and overwritten.
            let offset = if response_length == 0 { filled } else { 0 };
            let count = stream.read(&mut buffer[offset..]).await.unwrap();
            assert_ne!(count, 0, "the server closed the connection");
            filled += count;
            if response_length == 0 {
                (response_length, body_length) = parse_lengths(&buffer[..filled]).unwrap_or((0, 0));
            }
            if response_length != 0 && filled >= response_length {
                break;
            }
        }
        latencies.push(u64::try_from(due.elapsed().as_micros()).unwrap());
    }
    (latencies, body_length)
}

/// Parses the lengths of a response and of its body; `None` while its head is incomplete.
fn parse_lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let length: Option<usize> =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length = length.unwrap_or(0);
    Some((head_end + length, length))
}

/// User and system time of a process, in ticks of 10 ms (`proc_pid_stat(5)`).
fn cpu_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text[text.rfind(')').unwrap() + 2..].split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
