//! Responses of an upstream, compared with hyper's client: keyward's parser may be stricter, never more lenient.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use keyward_http::reverse_proxy::fuzz::{DecodedResponse, decode_response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Parses bytes as an upstream's response, as a whole, in parts, and with hyper's client.
pub(crate) fn response(bytes: &[u8]) {
    for bodiless in [false, true] {
        let whole = decode_response(bytes, bytes.len(), bodiless);
        let parts = decode_response(bytes, super::part_length(bytes), bodiless);
        let (Ok(whole), Ok(parts)) = (&whole, &parts) else {
            // The errors may differ, as the parser stops at the first part with an error.
            assert_eq!(whole.is_err(), parts.is_err(), "only one of whole and parts is an error");
            continue;
        };
        assert_eq!(whole.as_ref().map(summarize), parts.as_ref().map(summarize), "the response in parts differs");
        let Some(ours) = whole else { continue };
        assert!(ours.response.body().len() + ours.rest.len() <= bytes.len(), "more than was received");
        let hyper = parse_by_hyper(bytes, bodiless).expect("hyper rejects the response");
        compare_responses(ours, &hyper);
    }
}

fn summarize(decoded: &DecodedResponse) -> (StatusCode, &HeaderMap, &[u8], &HeaderMap, &[u8], bool) {
    let response = &decoded.response;
    (response.status(), response.headers(), response.body(), &decoded.trailers, &decoded.rest, decoded.reusable)
}

fn compare_responses(ours: &DecodedResponse, hyper: &HyperResponse) {
    assert_eq!(ours.response.status(), hyper.status);
    assert_eq!(ours.response.body(), &hyper.body, "the body differs");
    assert_eq!(ours.trailers, hyper.trailers, "the trailers differ");
    for name in ours.response.headers().keys().filter(|name| *name != http::header::CONTENT_LENGTH) {
        let values = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(values(ours.response.headers()), values(&hyper.headers), "the values of {name} differ");
    }
}

/// A response as hyper's client parses it.
struct HyperResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

fn parse_by_hyper(bytes: &[u8], bodiless: bool) -> Result<HyperResponse, hyper::Error> {
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
            Ok(HyperResponse { status: head.status, headers: head.headers, body, trailers })
        };
        let drive = async {
            let _ = connection.await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            (response, ()) = async { tokio::join!(call, serve) } => response,
            never = drive => match never {},
        }
    })
}
