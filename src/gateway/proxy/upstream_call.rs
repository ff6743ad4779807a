//! A request to the platform, before it has a token; and the response, before it is rewritten for the caller.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};
use hyper::body::Body as _;
use keyward_http::body_buffer::collect;
use keyward_http::reverse_proxy::{RequestBody, RequestHead, RequestLine, ResponseBody, remove_all};
use keyward_http::server::CallerGroup;
use keyward_telemetry::audit::AuditedRequest;

use super::body::GatewayBody;
use super::local_response::error_response;
use super::path;
use super::rate_limiter::RequestClass;
use super::response_headers::MAX_SMALL_BODY;
use crate::actions::{ApiCall, DeprecatedCall, Replacement};
use crate::jsonapi_error::MEDIA_TYPE;
use crate::platform_token::PlatformToken;

/// A request to the platform, without body and token.
#[derive(Debug, Clone)]
pub(super) struct UpstreamCall {
    /// Caller that the upstream connection is used for.
    pub(super) caller: CallerGroup,
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
    /// The request as its audit records it; `None` without an audit.
    pub(super) audited: Option<AuditedRequest>,
}

/// Path that tells a valid token from a rejected one, which gets 401. A token without an account gets 403 or 404.
pub(super) const ACCOUNT_DETAILS: &str = "/api/v2/account/details";

/// Request header that asks for all pages of a list in one response, with the value `true`.
pub(super) const MERGE_PAGES_HEADER: HeaderName = HeaderName::from_static("keyward-merge-pages");

/// Returns true for headers meant for the gateway. `Host` and `Authorization` are replaced instead.
fn is_gateway_header(name: &str) -> bool {
    matches!(name, "accept-encoding" | "expect" | "x-vault-token" | "x-vault-request" | "keyward-merge-pages")
}

/// Response of the gateway that replaces the platform's.
pub(super) type ErrorResponse = Box<Response<GatewayBody>>;

impl UpstreamCall {
    /// Removes headers meant for the gateway. Requests identity, as links in an encoded response could not be
    /// rewritten; a missing `Accept-Encoding` would allow any encoding (RFC 9110, 12.5.3). `Expect` is met by the
    /// gateway, which reads the body when it forwards it.
    pub(super) fn new(caller: CallerGroup, method: Method, target: PathAndQuery, mut headers: HeaderMap) -> Self {
        remove_all(&mut headers, is_gateway_header);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Self { caller, method, target, headers, audited: None }
    }

    /// Creates a `GET` call of the gateway's own.
    pub(super) fn own(path: &'static str) -> Self {
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static(MEDIA_TYPE)),
            (USER_AGENT, HeaderValue::from_static(concat!("keyward/", env!("CARGO_PKG_VERSION")))),
        ]);
        Self::new(CallerGroup::own_process(), Method::GET, PathAndQuery::from_static(path), headers)
    }

    /// Returns the limits that the call counts toward.
    pub(super) fn class(&self) -> RequestClass {
        let mut segments = self.target.path().strip_prefix("/api/v2/").unwrap_or_default().split('/');
        let shape = (segments.next(), segments.next(), segments.next(), segments.next());
        match shape {
            (Some("organizations" | "workspaces"), Some(_), Some(list), None)
                if self.method == Method::GET && path::percent_decode(list) == "runs" =>
            {
                RequestClass::RunList
            }
            _ => RequestClass::Other,
        }
    }

    /// Builds the request head with a token, for a body.
    pub(super) fn head(&self, host: &HeaderValue, token: &PlatformToken, body: &RequestBody) -> RequestHead {
        let line = RequestLine { method: &self.method, prefix: "", target: &self.target, host };
        let mut head = RequestHead::new(line, &self.headers, |name| *name != AUTHORIZATION, body);
        head.append_header(&AUTHORIZATION, &token.bearer());
        head
    }

    /// Borrows the call in the form that the rules take.
    pub(super) fn as_api_call(&self) -> ApiCall<'_> {
        ApiCall { method: &self.method, path: self.target.path(), query: self.target.query().unwrap_or_default() }
    }

    /// Builds the replacement of a deprecated call, and whether its body is dropped. The query stays. `None` if there
    /// is no replacement, or its path cannot be sent.
    pub(super) fn replacement(&self, deprecated: &DeprecatedCall, organization: Option<&str>) -> Option<(Self, bool)> {
        let Replacement { method, path, drops_body } = deprecated.replacement(organization)?;
        let query = self.target.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{path}{query}").parse().ok()?;
        let mut headers = self.headers.clone();
        if drops_body {
            headers.remove(CONTENT_LENGTH);
            // go-tfe: the platform responds with 415 to a DELETE without a type, although it has no body.
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(MEDIA_TYPE));
        }
        Some((Self { caller: self.caller, method, target, headers, audited: self.audited.clone() }, drops_body))
    }
}

/// A response, and the replacement call that was sent, if one was.
#[derive(Debug)]
pub(super) struct CallOutcome {
    pub(super) replacement: Option<UpstreamCall>,
    pub(super) response: Response<PlatformBody>,
}

/// Body of the platform's response.
#[derive(Debug)]
pub(super) enum PlatformBody {
    Streamed(ResponseBody),
    Buffered(Bytes),
    /// A document whose links lead to the gateway already.
    Merged(Bytes),
}

impl PlatformBody {
    /// Returns the length in bytes, if known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Streamed(body) => body.size_hint().exact(),
            Self::Buffered(body) | Self::Merged(body) => u64::try_from(body.len()).ok(),
        }
    }
}

impl CallOutcome {
    /// Reads the body of a small response, which frees its connection.
    pub(super) async fn buffer(self) -> Result<Self, ErrorResponse> {
        let Self { replacement, response } = self;
        let (parts, body) = response.into_parts();
        let body = match body {
            PlatformBody::Streamed(body) if body.size_hint().exact().is_some_and(|length| length <= MAX_SMALL_BODY) => {
                let limit = usize::try_from(MAX_SMALL_BODY).unwrap_or(usize::MAX);
                let broken = |_| Box::new(error_response(StatusCode::BAD_GATEWAY, "the platform's response broke off"));
                PlatformBody::Buffered(collect(body, limit).await.map_err(broken)?.into_bytes())
            }
            body => body,
        };
        Ok(Self { replacement, response: Response::from_parts(parts, body) })
    }
}
