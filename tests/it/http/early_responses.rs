//! Responses that come before the request's body was read: a caller that sends all of it first gets them too.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use keyward_credentials::credential_watch::RefreshSignal;
use keyward_machine::clock::Clock;
use tokio::time::Instant;

use crate::harness::Acl;
use crate::harness::front::Front;
use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::vault::Proxied;

const TIMES: usize = 8;

/// Statuses of so many calls with ten megabytes each, by a caller that reads nothing before it has sent all of it, as a
/// client does whose body is written by a separate task.
async fn statuses(address: SocketAddr, head: String) -> Vec<String> {
    let call = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("{head}Host: {address}\r\nContent-Length: 10000000\r\n\r\n");
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; 10_000_000]));
        let mut response = String::new();
        let read = stream.read_to_string(&mut response);
        match (sent, read) {
            (Ok(()), Ok(_)) => {
                let status = response.split(' ').nth(1).unwrap_or("no answer");
                // A client that is not told so may send its next request on a connection that closes.
                let closes = response.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
                format!("{status}{}", if closes { ", closes" } else { "" })
            }
            (sent, read) => format!("{sent:?} {read:?}"),
        }
    };
    tokio::task::spawn_blocking(move || (0..TIMES).map(|_| call()).collect()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_gateways_own_reaches_a_caller_that_sends_its_whole_body_first() {
    let front = Front::start();
    let statuses = statuses(front.address, "POST /api/v2/runs HTTP/1.1\r\n".to_owned()).await;
    assert_eq!(statuses, vec!["401, closes"; TIMES]);
    assert!(front.platform.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_platform_gives_early_reaches_a_caller_that_sends_its_whole_body_first() {
    let upstream = early("HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
    let front = Front::with(|options, _| options.upstream = format!("http://{upstream}").parse().unwrap());
    let head = format!("POST /api/v2/runs HTTP/1.1\r\nAuthorization: Bearer {}\r\n", front.local());
    assert_eq!(statuses(front.address, head).await, vec!["413, closes"; TIMES]);
}

/// An upstream that answers each head at once, then reads until its caller disconnects.
fn early(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut piece = vec![0; 64 * 1024];
                let _ = stream.read(&mut piece);
                let _ = stream.write_all(response.as_bytes());
                let _ = stream.shutdown(Shutdown::Write);
                while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_api_proxy_reaches_a_caller_that_sends_its_whole_body_first() {
    let proxied = Proxied::start();
    let statuses = statuses(proxied.address, "POST /v1/secret/data/a HTTP/1.1\r\n".to_owned()).await;
    assert_eq!(statuses, vec!["412, closes"; TIMES]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_acl_server_reaches_a_caller_that_sends_its_whole_body_first() {
    let acl = Acl::start().await;
    let address = acl.url.strip_prefix("http://").unwrap().parse().unwrap();
    let statuses = statuses(address, "POST /v1/acl/login HTTP/1.1\r\n".to_owned()).await;
    assert_eq!(statuses, vec!["413, closes"; TIMES]);
}

#[tokio::test]
async fn a_connection_stays_open_after_a_body_that_has_come_whole() {
    let proxied = Proxied::start();
    let mut caller = Raw::tcp(proxied.address).await;
    let head = "POST /v1/secret/data/a HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n";
    let [length, chunked] = ["Content-Length: 6\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"];
    for pieces in [
        [length, "abcdef", ""],
        [length, "abc", "def"],
        [chunked, "6\r\nabcdef\r\n0\r\n\r\n", ""],
        [chunked, "6\r\nabcdef\r\n", "0\r\n\r\n"],
        [chunked, "6\r\nabcdef\r\n0\r\n\r", "\n"],
        [chunked, "6\r\nabcdef\r\n0\r\n", "X-Sum: 1\r\n\r\n"],
    ] {
        for apart in [false, true] {
            caller.send(format!("{head}{}", pieces[0])).await;
            for piece in &pieces[1..] {
                if apart {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                caller.send(piece).await;
            }
            let response = caller.answer().await.unwrap_or_else(|| panic!("{pieces:?} {apart}: no answer"));
            assert_eq!((response.status, response.header("connection")), (200, None), "{pieces:?} {apart}");
            assert_eq!(proxied.vault.last().body, "abcdef");
        }
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_sent_again_never_waits_for_a_fresh_token() {
    // No publisher handles the refresh signal.
    let front = Front::with(|_, parts| parts.source.refresh_signal = RefreshSignal::new(Clock::System));
    front.platform.revoke("tok1");
    let started = Instant::now();
    let response = front.request("POST", "/api/v2/runs").body(vec![b'x'; 2 << 20]).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(started.elapsed() < Duration::from_secs(30), "after {:?}", started.elapsed());

    let proxied = Proxied::start();
    proxied.vault.answers(|_| reply(403, &[], r#"{"errors":["invalid token"]}"#));
    let started = Instant::now();
    let response = proxied.request("PUT", "secret/data/a").body(vec![b'x'; 2 << 20]).send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(started.elapsed() < Duration::from_secs(8), "after {:?}", started.elapsed());
    let requested = tokio::time::timeout(Duration::from_secs(5), proxied.refresh_signal.requested()).await;
    assert!(requested.is_ok(), "the token manager gets the refresh request all the same");
}
