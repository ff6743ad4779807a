//! The session's token does not appear in responses to requests that carried it, whatever the server does.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::ext::ReasonPhrase;
use keyward_http::client::ServerAddress;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::log;
use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::vault::{Proxied, cache, fetch};

const TOKEN: &str = "hvs.CAESIJ2x7Qv0Zk3m9sT1uW4yB6dF8gH0jL2nP5rR7tV9xZ1c";

fn proxied() -> Proxied {
    let proxied = Proxied::start();
    proxied.publish(TOKEN);
    proxied
}

fn echo(headers: &[(&str, &str)], status: u16, body: impl Into<Bytes>) -> Response<Bytes> {
    reply(status, headers, body)
}

#[tokio::test]
async fn t15_an_answer_that_repeats_the_token_in_its_head_or_held_body_is_a_502_and_an_event() {
    log::keep();
    let proxied = proxied();
    let check = async |what: &str| {
        let response = proxied.get("secret/data/web").await;
        assert_eq!(response.status, 502, "{what}: {response:?}");
        assert!(response.error().contains("contains the session's token"), "{response:?}");
        assert!(!format!("{response:?}").contains(TOKEN), "{response:?}");
    };
    proxied.vault.answers(|request| {
        let value = format!("got {}", request.token());
        echo(&[("x-echo", value.as_str())], 200, "{}")
    });
    check("a header").await;
    proxied.vault.answers(|request| echo(&[], 200, format!(r#"{{"errors":["bad {}"]}}"#, request.token())));
    check("a body").await;
    proxied.vault.answers(|request| echo(&[], 403, format!(r#"{{"errors":["{} may not"]}}"#, request.token())));
    check("a refusal").await;
    proxied.vault.answers(|request| echo(&[], 500, request.token().to_owned()));
    check("a failure").await;
    assert!(proxied.metrics.text().contains("keyward_proxy_token_leaks_total{listener=\"vault\"} 4\n"));
    let events: Vec<_> =
        log::lines().into_iter().filter(|line| line["fields"]["event"] == "proxy.token.leaked").collect();
    assert_eq!((events.len(), events[0]["level"].as_str()), (1, Some("WARN")), "{events:?}");
    assert!(!log::text().contains(TOKEN));

    let own = fetch(proxied.request("GET", "secret/data/web").header("x-vault-token", TOKEN)).await;
    assert_eq!((own.status, own.text.as_str()), (500, TOKEN), "a caller's own token is its own affair");
    proxied.vault.answers(|request| echo(&[], 200, request.token()[1..].to_owned()));
    assert_eq!(proxied.get("secret/data/web").await.status, 200, "it lacks a byte");
}

#[tokio::test]
async fn t15_an_answer_that_repeats_the_token_beside_its_status_gets_the_usual_words() {
    let proxied = proxied();
    proxied.vault.answers(|request| {
        let mut response = echo(&[], 200, "{}");
        let reason = ReasonPhrase::try_from(format!("OK {}", request.token()).as_bytes()).unwrap();
        response.extensions_mut().insert(reason);
        response
    });
    for path in ["secret/data/web", "auth/token/lookup-self"] {
        let head = format!("GET /v1/{path} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n");
        let response = Raw::tcp(proxied.address).await.ask(head).await;
        assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {response:?}");
        assert!(!response.head.contains(TOKEN), "{path}");
    }
    proxied.vault.answers(|request| echo(&[("x-echo", request.token())], 200, r#"{"data":{"id":"x"}}"#));
    let response = proxied.get("auth/token/lookup-self").await;
    assert_eq!((response.status, format!("{response:?}").contains(TOKEN)), (502, false), "{response:?}");
}

#[tokio::test]
async fn a_cache_does_not_keep_an_answer_that_repeats_the_token() {
    let proxied = Proxied::with(|options, _| {
        options.cache = Some(cache(Duration::from_mins(5), Duration::ZERO));
    });
    proxied.publish(TOKEN);
    proxied.vault.answers(|request| echo(&[], 200, format!(r#"{{"data":"{}"}}"#, request.token())));
    assert_eq!(proxied.get("secret/data/web").await.status, 502);
    proxied.vault.answers(|_| echo(&[], 200, r#"{"data":"good"}"#));
    let response = proxied.get("secret/data/web").await;
    assert_eq!((response.status, response.text.as_str()), (200, r#"{"data":"good"}"#));
}

#[tokio::test]
async fn requests_with_the_token_allow_no_compression_and_a_compressed_response_is_refused() {
    let proxied = proxied();
    let gzip = |path: &str| proxied.request("GET", path).header("accept-encoding", "gzip, br");
    assert_eq!(fetch(gzip("secret/data/web")).await.status, 200);
    assert_eq!(proxied.vault.last().header("accept-encoding"), "identity");
    fetch(gzip("secret/data/web").header("x-vault-token", "mine")).await;
    assert_eq!(proxied.vault.last().header("accept-encoding"), "gzip, br");
    proxied.vault.answers(|_| echo(&[("content-encoding", "gzip")], 200, "zipped"));
    let response = fetch(gzip("secret/data/web")).await;
    assert!(response.status == 502 && response.error().contains("compressed the response"), "{response:?}");
    assert_eq!(fetch(gzip("secret/data/web").header("x-vault-token", "mine")).await.text, "zipped");
    proxied.vault.answers(|_| echo(&[("content-encoding", "identity")], 200, "as it is"));
    assert_eq!(fetch(gzip("secret/data/web")).await.text, "as it is");
}

#[tokio::test]
async fn cors_headers_of_the_server_are_removed() {
    let proxied = proxied();
    proxied.vault.answers(|_| {
        let cors = [("access-control-allow-origin", "*"), ("access-control-expose-headers", "x"), ("x-kept", "1")];
        echo(&cors, 200, "{}")
    });
    for request in [proxied.request("GET", "a"), proxied.request("GET", "a").header("x-vault-token", "mine")] {
        let response = fetch(request).await;
        assert_eq!((response.status, &response.headers["x-kept"]), (200, &"1".parse().unwrap()));
        assert!(!response.headers.keys().any(|name| name.as_str().starts_with("access-control-")), "{response:?}");
    }
}

/// Sends the bytes; returns false if the other side has closed the connection.
async fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).await.is_ok()
}

/// A server that answers each request with these pieces of a body, each in its own chunk and packet.
async fn streaming(pieces: Vec<Vec<u8>>, servers: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    servers.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut head = vec![0; 64 * 1024];
            let mut length = 0;
            while !head[..length].ends_with(b"\r\n\r\n") {
                match stream.read(&mut head[length..]).await.unwrap() {
                    0 => break,
                    more => length += more,
                }
            }
            send(&mut stream, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n").await;
            for piece in &pieces {
                let size = format!("{:x}\r\n", piece.len());
                let chunk = [size.as_bytes(), piece.as_slice(), b"\r\n".as_slice()].concat();
                if !send(&mut stream, &chunk).await {
                    break;
                }
                // Pieces that come together would be read together.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            send(&mut stream, b"0\r\n\r\n").await;
        }
    });
    url
}

/// The same as `streamed_to_holder_of`, for a session with the token of most tests.
async fn streamed(pieces: Vec<Vec<u8>>) -> (Vec<u8>, bool) {
    streamed_to_holder_of(TOKEN, pieces).await
}

/// Returns the part of such a response that a caller gets whose session has this token, and true if it ended properly.
async fn streamed_to_holder_of(token: &str, pieces: Vec<Vec<u8>>) -> (Vec<u8>, bool) {
    let mut servers = JoinSet::new();
    let url = streaming(pieces, &mut servers).await;
    let proxied = Proxied::with(|_, upstream| upstream.client.address = ServerAddress::Url(url.parse().unwrap()));
    proxied.publish(token);
    // If the token comes first, the connection may be cut before the head is sent.
    let Ok(mut response) = proxied.request("GET", "secret/data/web").send().await else { return (Vec::new(), false) };
    assert_eq!(response.status(), 200);
    let mut found = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => found.extend_from_slice(&chunk),
            Ok(None) => return (found, true),
            Err(_) => return (found, false),
        }
    }
}

#[tokio::test]
async fn a_streamed_answer_is_cut_before_the_token_in_it_is_whole() {
    let token = TOKEN.as_bytes();
    let (start, end) = (vec![b'a'; 20_000], vec![b'z'; 20_000]);
    for cut in [1, 4, 20, 32, 33, token.len() - 1] {
        let pieces = vec![start.clone(), token[..cut].to_vec(), token[cut..].to_vec(), end.clone()];
        let (found, whole) = streamed(pieces).await;
        assert!(!whole, "{cut}");
        assert!(!found.windows(8).any(|part| token.windows(8).any(|window| window == part)), "{cut}: {}", found.len());
        assert!(found.iter().all(|byte| *byte == b'a'), "{cut}");
    }
    let bytewise = token.iter().map(|byte| vec![*byte]).collect::<Vec<_>>();
    let (found, whole) = streamed([vec![start.clone()], bytewise, vec![end.clone()]].concat()).await;
    assert!(!whole && found.iter().all(|byte| *byte == b'a'), "{}", found.len());
    let (found, whole) = streamed(vec![[start.as_slice(), token, &end].concat()]).await;
    assert!(!whole && !found.windows(8).any(|part| part == &token[..8]), "{}", found.len());
}

#[tokio::test]
async fn a_token_as_long_as_vaults_is_found_anywhere_in_a_long_answer() {
    let token = format!("{TOKEN}{}", &TOKEN[4..47]);
    assert_eq!(token.len(), 95, "as Vault 1.10 and later make them");
    for offset in [0, 40_000, 100_001, 131_000, 399_905] {
        let mut body: Vec<u8> =
            (0..399_905_u32).map(|at| b"hvs.CAESIJ {}:,\"0123456789"[at as usize * 7 % 26]).collect();
        body.splice(offset..offset, token.bytes());
        let (found, whole) = streamed_to_holder_of(&token, vec![body.clone()]).await;
        assert!(!whole && body.starts_with(&found) && found.len() < offset + token.len(), "{offset}: {}", found.len());
        body[offset + 94] ^= 1;
        let (found, whole) = streamed_to_holder_of(&token, vec![body.clone()]).await;
        assert!(whole && found == body, "{offset}: {}", found.len());
    }
}

#[tokio::test]
async fn a_streamed_answer_with_the_beginnings_of_a_token_is_passed_on_byte_by_byte() {
    let token = TOKEN.as_bytes();
    let pieces = vec![
        [b"{\"data\":\"".as_slice(), &token[..10]].concat(),
        token[..10].to_vec(),
        token[10..token.len() - 1].to_vec(),
        b"!".to_vec(),
        vec![b'x'; 100_000],
        token[..1].to_vec(),
        token[..token.len() - 1].to_vec(),
    ];
    let (found, whole) = streamed(pieces.clone()).await;
    assert_eq!((found == pieces.concat(), whole), (true, true), "{}", found.len());
}

#[tokio::test]
async fn a_large_answer_of_known_length_keeps_its_length() {
    let proxied = proxied();
    let body = [vec![b'x'; 3 << 20], TOKEN.as_bytes()[..30].to_vec()].concat();
    let its = body.clone();
    proxied.vault.answers(move |_| echo(&[], 200, its.clone()));
    let response = proxied.get("secret/data/web").await;
    assert_eq!(response.headers["content-length"], body.len().to_string().as_str());
    assert_eq!((response.status, response.text.as_bytes() == body), (200, true));
}
