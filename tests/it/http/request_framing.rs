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
            let answer = caller.ask(format!("{head}{framing}\r\n{BODY}")).await;
            assert_eq!(answer.status, 400, "{name} {framing:?}: {answer:?}");
        }
        // The head comes in pieces.
        let mut caller = Raw::tcp(address).await;
        for piece in [head.as_str(), "Content-Len", "gth: 14\r\nTransfer", "-Encoding: chunked\r", "\n\r\n", BODY] {
            caller.send(piece).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(caller.answer().await.unwrap().status, 400, "{name}, in pieces");
    }
    assert!(listeners.front.platform.seen().is_empty() && listeners.proxied.vault.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_contains_a_length_is_not_scanned_as_a_head() {
    let listeners = Listeners::start().await;
    for (name, address, head) in listeners.all() {
        let text = "{\"Name\":\"pol\",\n\"Description\":\"\nContent-Length: 3\r\n\r\n\"}".replace('\n', " ");
        let named = "\r\nContent-Length: 3\r\n";
        let body = format!("{:x}\r\n{text}\r\n{:x}\r\n{named}\r\n0\r\n\r\n", text.len(), named.len());
        let mut caller = Raw::tcp(address).await;
        let answer = caller.ask(format!("{head}{CHUNKED}\r\n{body}")).await;
        let refused = answer.status == 400 && answer.body.contains("Transfer-Encoding");
        assert!(!refused, "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn an_http_2_upgrade_is_ignored_and_not_forwarded() {
    let listeners = Listeners::start().await;
    let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
    for (name, address, head) in listeners.all() {
        let mut caller = Raw::tcp(address).await;
        for _ in 0..2 {
            let answer = caller.ask(format!("{head}{offer}{LENGTH}\r\n{{\"Name\":\"pol\"}}")).await;
            assert!(answer.head.starts_with("HTTP/1.1 "), "{answer:?}");
            let known = name == "ACL server" && answer.body.contains("already");
            assert!(answer.status == 200 || known, "{name}: {answer:?}");
        }
    }
    for seen in listeners.front.platform.seen().into_iter().chain(listeners.proxied.vault.seen()) {
        assert_eq!((seen.header("upgrade"), seen.header("http2-settings")), ("", ""), "{seen:?}");
    }
}
