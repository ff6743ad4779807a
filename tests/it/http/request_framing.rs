//! Heads that are refused, and offers in them that are ignored, at every listener that serves more than probes.

use std::net::SocketAddr;

use crate::harness::Acl;
use crate::harness::front::Front;
use crate::harness::raw::Raw;
use crate::harness::vault::Proxied;

/// A listener of each kind, and a request that it answers well.
struct Listeners {
    front: Front,
    proxied: Proxied,
    acl: Acl,
}

impl Listeners {
    async fn start() -> Self {
        Self { front: Front::start(), proxied: Proxied::start(), acl: Acl::start().await }
    }

    /// Name, address, request line and headers of each.
    fn all(&self) -> Vec<(&'static str, SocketAddr, String)> {
        let acl = self.acl.url.strip_prefix("http://").unwrap().parse().unwrap();
        let local = format!("POST /api/v2/runs HTTP/1.1\r\nAuthorization: Bearer {}\r\n", self.front.local());
        let vault = "POST /v1/secret/data/a HTTP/1.1\r\nX-Vault-Request: true\r\n".to_owned();
        let token = format!("PUT /v1/acl/policy HTTP/1.1\r\nX-Consul-Token: {}\r\n", self.acl.root);
        let listeners = [
            ("gateway", self.front.address, local),
            ("API proxy", self.proxied.address, vault),
            ("ACL server", acl, token),
        ];
        listeners.map(|(name, address, head)| (name, address, format!("{head}Host: {address}\r\n"))).into()
    }
}

const LENGTH: &str = "Content-Length: 14\r\n";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
/// `{"Name":"pol"}` in one chunk.
const BODY: &str = "e\r\n{\"Name\":\"pol\"}\r\n0\r\n\r\n";

#[tokio::test]
async fn a_length_beside_a_transfer_encoding_is_refused_whatever_their_order_and_spelling() {
    let listeners = Listeners::start().await;
    for (name, address, head) in listeners.all() {
        for framing in [
            format!("{LENGTH}{CHUNKED}"),
            format!("{CHUNKED}{LENGTH}"),
            "content-length: 14\r\nX-Between: a\r\nTRANSFER-ENCODING: chunked\r\n".to_owned(),
            "tRANSFER-eNCODING: Chunked\r\nCONTENT-LENGTH: 0\r\n".to_owned(),
            format!("{LENGTH}{CHUNKED}{LENGTH}"),
        ] {
            let mut caller = Raw::tcp(address).await;
            let response = caller.ask(format!("{head}{framing}\r\n{BODY}")).await;
            assert_eq!(response.status, 400, "{name} {framing:?}: {response:?}");
        }
        // The head comes in pieces.
        let mut caller = Raw::tcp(address).await;
        for piece in [head.as_str(), "Content-Len", "gth: 14\r\nTransfer", "-Encoding: chunked\r", "\n\r\n", BODY] {
            caller.send(piece).await;
            // Pieces that come together would be read together.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(caller.answer().await.unwrap().status, 400, "{name}, in pieces");
    }
    assert!(listeners.front.platform.requests().is_empty() && listeners.proxied.vault.requests().is_empty());
}

/// Each head could be read as one request by the listener and as two by a server behind it.
#[tokio::test]
async fn t12_no_second_request_reaches_the_server_inside_of_a_first() {
    let proxied = Proxied::start();
    let second = "GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n";
    let (length, chunk) = (second.len(), format!("{:x}\r\n{second}\r\n0\r\n\r\n", second.len()));
    let framings = [
        format!("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n0\r\n\r\n{second}"),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{second}"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n\r\n{second}"),
        format!("Content-Length: 0, {length}\r\n\r\n{second}"),
        format!("Content-Length: +{length}\r\n\r\n{second}"),
        format!("Content-Length: 0x{length:x}\r\n\r\n{second}"),
        format!("Content-Length: {length} \t\r\nContent-Length : 0\r\n\r\n{second}"),
        format!("Content-Length:\r\n {length}\r\n\r\n{second}"),
        format!("Content-Length: -1\r\n\r\n{second}"),
        format!("Content-Length: {length}\u{b}\r\n\r\n{second}"),
        format!("Content-Length: 18446744073709551616\r\n\r\n{second}"),
        format!("Transfer-Encoding: chunked, identity\r\n\r\n{chunk}"),
        format!("Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n{second}"),
        format!("Transfer-Encoding: xchunked\r\n\r\n{chunk}"),
        format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{chunk}"),
        format!("Transfer-Encoding:\r\n chunked\r\n\r\n{chunk}"),
        format!("Transfer-Encoding : chunked\r\n\r\n{chunk}"),
        format!("Transfer-Encoding: gzip, chunked\r\n\r\n{chunk}"),
        format!("Transfer-Encoding: \"chunked\"\r\n\r\n{chunk}"),
        format!("Transfer\u{0}Encoding: chunked\r\n\r\n{chunk}"),
        format!("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"),
        format!("Connection: Content-Length\r\nContent-Length: {length}\r\n\r\n{second}"),
        format!("Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: {length}\r\n\r\n{second}"),
        format!("Expect: 100-continue\r\nContent-Length: {length}\r\nContent-Length: {length}\r\n\r\n{second}"),
        format!("Transfer-Encoding: chunked\r\n\r\n-1\r\n{second}\r\n0\r\n\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n0x{length:x}\r\n{second}\r\n0\r\n\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n{second}\r\n0\r\n\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x} \r\r\n{second}\r\n0\r\n\r\n"),
        "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n".to_owned(),
        format!("Content-Length: {length}\r\n\r\n{second}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{chunk}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x};a=\"\r\n{second}\r\n0\r\nTrailer: a\r\n\r\n"),
    ];
    let mut served = 0;
    for method in ["POST", "GET"] {
        for framing in &framings {
            let mut caller = Raw::tcp(proxied.address).await;
            let head = format!("{method} /v1/first HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n");
            caller.send(format!("{head}{framing}")).await;
            let response = caller.answer().await;
            served += usize::from(response.is_some_and(|response| response.status == 200));
            let requests = proxied.vault.requests();
            let targets: Vec<&str> = requests.iter().map(|request| request.target.as_str()).collect();
            assert!(targets.iter().all(|target| *target == "/v1/first"), "{method} {framing:?}: {targets:?}");
        }
    }
    assert!((4..12).contains(&served), "{served} were served: the plain ones and hardly more");
}

#[tokio::test]
async fn a_body_that_contains_a_length_is_not_scanned_as_a_head() {
    let listeners = Listeners::start().await;
    for (name, address, head) in listeners.all() {
        let text = "{\"Name\":\"pol\",\n\"Description\":\"\nContent-Length: 3\r\n\r\n\"}".replace('\n', " ");
        let named = "\r\nContent-Length: 3\r\n";
        let body = format!("{:x}\r\n{text}\r\n{:x}\r\n{named}\r\n0\r\n\r\n", text.len(), named.len());
        let mut caller = Raw::tcp(address).await;
        let response = caller.ask(format!("{head}{CHUNKED}\r\n{body}")).await;
        let refused = response.status == 400 && response.body.contains("Transfer-Encoding");
        assert!(!refused, "{name}: {response:?}");
    }
}

#[tokio::test]
async fn an_http_2_upgrade_is_ignored_and_not_forwarded() {
    let listeners = Listeners::start().await;
    let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
    for (name, address, head) in listeners.all() {
        let mut caller = Raw::tcp(address).await;
        for _ in 0..2 {
            let response = caller.ask(format!("{head}{offer}{LENGTH}\r\n{{\"Name\":\"pol\"}}")).await;
            assert!(response.head.starts_with("HTTP/1.1 "), "{response:?}");
            let known = name == "ACL server" && response.body.contains("already");
            assert!(response.status == 200 || known, "{name}: {response:?}");
        }
    }
    for request in listeners.front.platform.requests().into_iter().chain(listeners.proxied.vault.requests()) {
        assert_eq!((request.header("upgrade"), request.header("http2-settings")), ("", ""), "{request:?}");
    }
}
