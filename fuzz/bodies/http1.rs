//! Responses of an upstream, compared with hyper's client: ours may be stricter, never laxer.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use keyward::http::reverse_proxy::fuzz::{DecodedResponse, decode_response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Reads bytes as an upstream's response, in parts and as hyper's client does.
pub(crate) fn response(bytes: &[u8]) {
    for bodiless in [false, true] {
        let whole = decode_response(bytes, bytes.len(), bodiless);
        let parts = decode_response(bytes, super::part_length(bytes), bodiless);
        let (Ok(whole), Ok(parts)) = (&whole, &parts) else {
            // A later part may be the first that shows the error, never the other way around.
            assert_eq!(whole.is_err(), parts.is_err(), "an error in parts alone, or as a whole alone");
            continue;
        };
        assert_eq!(whole.as_ref().map(summary), parts.as_ref().map(summary), "in parts it is another");
        let Some(ours) = whole else { continue };
        assert!(ours.response.body().len() + ours.rest.len() <= bytes.len(), "more than was received");
        let hyper = by_hyper(bytes, bodiless).expect("hyper refuses it");
        compare(ours, &hyper);
    }
}

fn summary(decoded: &DecodedResponse) -> (StatusCode, &HeaderMap, &[u8], &HeaderMap, &[u8], bool) {
    let response = &decoded.response;
    (response.status(), response.headers(), response.body(), &decoded.trailers, &decoded.rest, decoded.reusable)
}

fn compare(ours: &DecodedResponse, hyper: &ByHyper) {
    assert_eq!(ours.response.status(), hyper.status);
    assert_eq!(ours.response.body(), &hyper.body, "another body");
    assert_eq!(ours.trailers, hyper.trailers, "other trailers");
    for name in ours.response.headers().keys().filter(|name| *name != http::header::CONTENT_LENGTH) {
        let values = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(values(ours.response.headers()), values(&hyper.headers), "other values of {name}");
    }
}

struct ByHyper {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

fn by_hyper(bytes: &[u8], bodiless: bool) -> Result<ByHyper, hyper::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (client, mut server) = tokio::io::duplex(bytes.len() + 4096);
        let mut builder = hyper::client::conn::http1::Builder::new();
        let connected = builder.max_headers(128).handshake::<_, Empty<Bytes>>(TokioIo::new(client)).await;
        let (mut sender, connection) = connected?;
        let serve = async {
            // The response is sent after the request: hyper drops a connection on which it comes unasked.
            let mut request = [0; 4096];
            let _ = server.read(&mut request).await;
            let _ = server.write_all(bytes).await;
            let _ = server.shutdown().await;
        };
        let method = if bodiless { Method::HEAD } else { Method::GET };
        let request = Request::builder().method(method).uri("/").header("host", "upstream").body(Empty::new());
        let call = async {
            let response = sender.send_request(request.expect("a request")).await?;
            let (head, body) = response.into_parts();
            let collected = body.collect().await?;
            let trailers = collected.trailers().cloned().unwrap_or_default();
            let body = collected.to_bytes().to_vec();
            Ok(ByHyper { status: head.status, headers: head.headers, body, trailers })
        };
        let drive = async {
            let _ = connection.await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            (found, ()) = async { tokio::join!(call, serve) } => found,
            never = drive => match never {},
        }
    })
}
