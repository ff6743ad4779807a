//! Rewrites the platform's responses for callers of the gateway: links lead to the gateway, headers fit its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Frame;
use keyward_machine::clock::Clock;
use url::Url;

use super::body::{GatewayBody, RewritingBody};
use super::link_rewriter::LinkRewriter;
use super::local_response::error_response;
use super::origins::LinkPrefixes;
use super::path;
use super::provider_download;
use super::response_headers::{self, BodyKind};
use super::upstream_call::{ErrorResponse, PlatformBody, UpstreamCall};

/// Rewrites the responses of one platform.
#[derive(Debug)]
pub(super) struct ResponseRewriter {
    /// The platform's address: scheme, host and port.
    upstream: Url,
    origin: String,
    /// Its other addresses.
    aliases: Vec<Url>,
    /// Prefixes of links into the platform's API.
    link_prefixes: Arc<LinkPrefixes>,
    clock: Clock,
    /// True once an encoded response has been logged.
    warned_encoded: AtomicBool,
}

impl ResponseRewriter {
    /// Rewrites links that begin with the platform's address or one of its aliases.
    pub(super) fn new(upstream: &Url, aliases: &[Url], clock: Clock) -> Self {
        Self {
            upstream: upstream.clone(),
            origin: upstream.origin().ascii_serialization(),
            aliases: aliases.to_vec(),
            link_prefixes: Arc::new(LinkPrefixes::new(std::iter::once(upstream).chain(aliases))),
            clock,
            warned_encoded: AtomicBool::new(false),
        }
    }

    /// Rewrites the platform's response for a caller of the gateway.
    pub(super) async fn rewrite(
        &self,
        call: &UpstreamCall,
        origin: Option<&str>,
        response: Response<PlatformBody>,
    ) -> Response<GatewayBody> {
        let is_user_file = path::is_user_file(call.target.path());
        if call.method != Method::HEAD
            && !is_user_file
            && let Some(rejection) = self.reject_encoded(&response, response.body().length())
        {
            return *rejection;
        }
        let (mut parts, body) = response.into_parts();
        response_headers::rewrite_headers(
            parts.status,
            &mut parts.headers,
            || self.platform_url(call),
            |url| std::iter::once(&self.upstream).chain(&self.aliases).any(|known| known.origin() == url.origin()),
            self.clock.now().wall,
        );
        let kind = if is_user_file {
            BodyKind::Other
        } else {
            response_headers::classify_body(parts.status, &parts.headers, body.length())
        };
        let is_download = provider_download::is_download(call.target.path());
        let rewrite_to =
            origin.filter(|_| !matches!(kind, BodyKind::Other | BodyKind::EncodedJson) && call.method != Method::HEAD);
        let body = match (body, rewrite_to) {
            (PlatformBody::Streamed(body), None) => GatewayBody::Streamed(body),
            (PlatformBody::Buffered(body), None) | (PlatformBody::Merged(body), _) => {
                GatewayBody::Buffered(Full::new(body))
            }
            (PlatformBody::Buffered(body), Some(origin)) => {
                let mut rewriter = self.link_rewriter(origin);
                let mut rewritten = Vec::new();
                rewriter.rewrite(&body, &mut rewritten);
                rewriter.finish(&mut rewritten);
                response_headers::set_length(&mut parts.headers, Some(rewritten.len()));
                GatewayBody::Buffered(Full::new(rewritten.into()))
            }
            (PlatformBody::Streamed(mut body), Some(origin)) => {
                let mut rewriter = self.link_rewriter(origin);
                if kind == BodyKind::LargeJson && !is_download {
                    response_headers::set_length(&mut parts.headers, None);
                    GatewayBody::Rewriting(Box::new(RewritingBody::new(body, rewriter)))
                } else {
                    let mut rewritten = Vec::new();
                    while let Some(frame) = body.frame().await {
                        if rewritten.len() > provider_download::MAX_SIZE {
                            return error_response(StatusCode::BAD_GATEWAY, "the platform's response is too large");
                        }
                        match frame.map(Frame::into_data) {
                            Ok(Ok(chunk)) => rewriter.rewrite(&chunk, &mut rewritten),
                            // A body with a length has no trailers.
                            Ok(Err(_)) => {}
                            Err(_) => {
                                return error_response(StatusCode::BAD_GATEWAY, "the platform's response broke off");
                            }
                        }
                    }
                    rewriter.finish(&mut rewritten);
                    if is_download
                        && let Some(absolute) =
                            provider_download::make_addresses_absolute(&rewritten, &self.platform_url(call))
                    {
                        rewritten = absolute;
                    }
                    response_headers::set_length(&mut parts.headers, Some(rewritten.len()));
                    GatewayBody::Buffered(Full::new(Bytes::from(rewritten)))
                }
            }
        };
        Response::from_parts(parts, body)
    }

    /// Creates a rewriter for a document that is sent to a caller of the gateway at `origin`.
    pub(super) fn link_rewriter(&self, origin: &str) -> LinkRewriter {
        LinkRewriter::new(&self.link_prefixes, origin)
    }

    /// Returns the platform's URL of a call, without its query.
    pub(super) fn platform_url(&self, call: &UpstreamCall) -> Url {
        let mut url = self.upstream.clone();
        url.set_path(call.target.path());
        url
    }

    /// Rejects a JSON document that came encoded although identity was requested. Its links cannot be rewritten, and a
    /// client that follows them would leave the gateway with the local token.
    pub(super) fn reject_encoded<B>(&self, response: &Response<B>, length: Option<u64>) -> Option<ErrorResponse> {
        let kind = response_headers::classify_body(response.status(), response.headers(), length);
        let encoding =
            response_headers::content_encoding(response.headers()).filter(|_| kind == BodyKind::EncodedJson)?;
        let encoding = encoding.to_str().ok().filter(|name| name.len() <= 32).unwrap_or("of an unknown name");
        if !self.warned_encoded.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "gateway.response.encoded",
                upstream = self.origin,
                encoding,
                "refusing content-encoded responses: their links cannot be rewritten"
            );
        }
        let detail = format!(
            "the platform at {} sent Content-Encoding {encoding} although identity was requested, so links cannot be rewritten; \
             disable compression in the proxy in front of it",
            self.origin,
        );
        Some(Box::new(error_response(StatusCode::BAD_GATEWAY, detail)))
    }
}
