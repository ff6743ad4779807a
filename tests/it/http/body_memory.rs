//! Bodies that are buffered in memory, sent one byte at a time: the process stays within the documented bound.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, eventually};
use crate::harness::gateway_process::GatewayProcess;
use crate::harness::platform::Emulated;
use crate::harness::world::{World, run_in_network_namespace};

/// Far above what the bounds allow eight callers who have sent some ten thousand bytes each, in KiB.
const MOST: usize = 12 * 1024;

const CALLERS: usize = 8;

/// Bytes of each caller, less than the shortest bound, which would end the body. Each held a read buffer of 4 KiB once.
const BYTES: usize = 12_000;

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// Sends `head` on eight connections, and then a body one byte a write. Checks how much the process grows by it, and that it
/// is given back.
fn drip(pid: u32, connect: &(dyn Fn() -> Box<dyn Stream> + Sync), head: &str, byte: &str) {
    // Memory that the process allocates once, for its first callers, is not counted.
    hold(connect, head, byte, 200, &|| 0);
    let before = resident(pid);
    let most = hold(connect, head, byte, BYTES, &|| resident(pid));
    assert!(most < before + MOST, "{most} KiB while the bodies were held, {before} KiB before");
    eventually(Duration::from_secs(30), || match resident(pid) {
        after if after < before + MOST / 2 => Ok(()),
        after => Err(format!("{after} KiB after the callers have gone, {before} KiB before")),
    });
}

/// Sends so many bytes on each connection, one by one; returns the result of `count_requests` once all are sent.
fn hold(
    connect: &(dyn Fn() -> Box<dyn Stream> + Sync),
    head: &str,
    byte: &str,
    bytes: usize,
    count_requests: &(dyn Fn() -> usize + Sync),
) -> usize {
    let barrier = std::sync::Barrier::new(CALLERS + 1);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut stream = connect();
                stream.write_all(head.as_bytes()).unwrap();
                for _ in 0..bytes {
                    stream.write_all(byte.as_bytes()).expect("nothing is answered while the body comes");
                    // Bytes that come together would be read together.
                    std::thread::sleep(Duration::from_micros(50));
                }
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        let count_requests = count_requests();
        barrier.wait();
        count_requests
    })
}

fn tcp(address: &str) -> Box<dyn Stream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    Box::new(stream)
}

/// In KiB.
fn resident(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_login_that_comes_byte_by_byte_takes_no_more_of_the_acl_server_than_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("acl").display().to_string();
    let service = Binary::start(&["acl", "serve", "--dir", &dir, "--listen", "127.0.0.1:0"], &[], folder.path());
    let url = eventually(Duration::from_secs(30), || {
        let output = service.output();
        let rest_of_output = output.split_once("keyward acl bootstrap --address ");
        rest_of_output.and_then(|(_, rest)| Some(rest.split_once(' ')?.0.to_owned())).ok_or(output)
    });
    let address = url.trim_start_matches("http://").to_owned();
    let head = format!("POST /v1/acl/login HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\n\r\n");
    drip(service.id(), &|| tcp(&address), &head, "1\r\nx\r\n");
}

#[test]
fn a_call_that_comes_byte_by_byte_takes_no_more_of_the_gateway_than_its_bytes() {
    let it = platform();
    let gateway = GatewayProcess::start(&it.1, "warn");
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let head = format!(
        "POST /api/v2/organizations HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Length: 1000000\r\n\r\n",
        gateway.local()
    );
    drip(gateway.id(), &|| tcp(&address), &head, "x");
}

/// The emulated platform and its runtime.
fn platform() -> (tokio::runtime::Runtime, Emulated) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let emulated = {
        let _inside = runtime.enter();
        Emulated::start()
    };
    (runtime, emulated)
}

#[test]
fn a_request_that_comes_byte_by_byte_takes_no_more_of_the_api_proxy_than_its_bytes() {
    run_in_network_namespace(|| {
        let world = World::start();
        let listener = "[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n";
        let agent = Agent::ready(&world, &[], |text| text + listener);
        let socket = agent.path("vault.sock");
        let connect = || Box::new(UnixStream::connect(&socket).unwrap()) as Box<dyn Stream>;
        let head = "POST /v1/secret/data/dripping HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\
                    Content-Length: 1000000\r\n\r\n";
        drip(agent.binary.id(), &connect, head, "x");
    });
}
