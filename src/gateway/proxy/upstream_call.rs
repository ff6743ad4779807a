//! One call to the platform: its turn, its token, and once more where the platform took too many or refused the token.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};

use super::body::{Answered, Asked};
use super::rate_limiter::Kind;
use super::response::{self, later};
use super::{Inner, path};
use crate::credential_watch::Availability;
use crate::error_chain::format_chain;
use crate::gateway::platform_token::PlatformToken;
use crate::http::body_buffer::{BodyBuffer, collect};
use crate::http::reverse_proxy::{ForwardError, RequestBody, RequestHead, RequestLine, ResponseBody, remove_all};
use crate::http::server::Caller;

/// What is asked of the platform, without its body and its token.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The caller, for whom a connection to the upstream is taken.
    pub(super) caller: Caller,
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
}

/// With `true` in it, a call asks for all pages of such a list in one.
pub(super) const ASKS: HeaderName = HeaderName::from_static("keyward-merge-pages");

/// Headers that are for the gateway, beside `Host` and `Authorization`, in whose place its own are put.
fn is_of_the_way_here(name: &str) -> bool {
    matches!(name, "accept-encoding" | "expect" | "x-vault-token" | "x-vault-request" | "keyward-merge-pages")
}

/// What a caller is told in place of the platform's answer.
pub(super) type Refused = Box<Response<Answered>>;

impl Call {
    /// Takes off what belongs to the way here. An encoded answer could not be read for links, so that identity is asked for: no
    /// `Accept-Encoding` means any encoding (RFC 9110, 12.5.3). An expectation is met here: the body is asked for when it is
    /// sent on.
    pub(super) fn new(caller: Caller, method: Method, target: PathAndQuery, mut headers: HeaderMap) -> Self {
        remove_all(&mut headers, is_of_the_way_here);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Self { caller, method, target, headers }
    }

    fn kind(&self) -> Kind {
        let mut segments = self.target.path().strip_prefix("/api/v2/").unwrap_or_default().split('/');
        let shape = (segments.next(), segments.next(), segments.next(), segments.next());
        match shape {
            (Some("organizations" | "workspaces"), Some(_), Some(list), None)
                if self.method == Method::GET && path::decoded(list) == "runs" =>
            {
                Kind::RunList
            }
            _ => Kind::Usual,
        }
    }

    /// Its head as it is sent with that token, for that body.
    fn head(&self, inner: &Inner, token: &PlatformToken, body: &RequestBody) -> RequestHead {
        let line = RequestLine { method: &self.method, prefix: "", target: &self.target, host: &inner.host };
        let mut head = RequestHead::new(line, &self.headers, |name| *name != AUTHORIZATION, body);
        head.put(&AUTHORIZATION, &token.bearer());
        head
    }
}

impl Inner {
    /// Calls the platform.
    ///
    /// # Errors
    /// It could not be called, or did not answer: what the caller is told.
    pub(super) async fn exchange(&self, call: &Call, body: Asked) -> Result<Response<ResponseBody>, Refused> {
        let token = self.token()?;
        let kept = body.again();
        let mut first = self.send(call, &token, body.send()).await?;
        if first.status() == StatusCode::TOO_MANY_REQUESTS
            && let Some(again) = kept.as_ref().filter(|_| self.is_taken_soon(first.headers())).and_then(Asked::again)
        {
            // Nothing was done either. Its turn comes after the pause that the answer has told.
            drop(first);
            first = Box::pin(self.send(call, &token, again.send())).await?;
        }
        if first.status() == StatusCode::UNAUTHORIZED {
            drop(first);
            return Box::pin(self.exchange_again(call, token, kept)).await;
        }
        self.record_acceptance(&token);
        Ok(first)
    }

    pub(super) async fn send(
        &self,
        call: &Call,
        token: &PlatformToken,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, Refused> {
        self.limiter.turn(call.kind()).await.map_err(|wait| {
            Box::new(later(
                StatusCode::TOO_MANY_REQUESTS,
                "the gateway holds too many requests back for this platform",
                wait,
            ))
        })?;
        let head = call.head(self, token, &body);
        match self.forwarder.send(call.caller, &head, body, self.options.answer_timeout).await {
            Ok(answer) => {
                self.learn(&answer);
                Ok(answer)
            }
            Err(error) => Err(Box::new(self.failed(&error))),
        }
    }

    /// Whether a refusal because of too many requests tells that they are taken again soon, and is waited for.
    fn is_taken_soon(&self, headers: &HeaderMap) -> bool {
        let wait = response::reset(headers, self.parts.clock.now().wall);
        self.limiter.pauses() && wait.is_some_and(|wait| wait <= SOON_TAKEN)
    }

    /// A document of the platform's of a bounded size, by its path; `None` where there is none.
    pub(super) async fn document(&self, target: &str, headers: &HeaderMap, most: usize) -> Option<Bytes> {
        let call = Call::new(Caller::ourselves(), Method::GET, target.parse().ok()?, headers.clone());
        let answer = self.exchange(&call, Asked::empty()).await.ok()?;
        if answer.status() != StatusCode::OK {
            return None;
        }
        collect(answer.into_body(), most).await.ok().map(BodyBuffer::into_bytes)
    }

    fn learn(&self, answer: &Response<ResponseBody>) {
        if self.reached.answered() {
            tracing::info!(event = "gateway.upstream.back", upstream = self.origin, "the platform answers again");
        }
        let (status, headers) = (answer.status(), answer.headers());
        self.learn_server(headers);
        // A refused token says nothing of the limit of a good one.
        if status != StatusCode::UNAUTHORIZED {
            self.limiter.told(response::limit(headers));
        }
        if status == StatusCode::TOO_MANY_REQUESTS
            && let Some(wait) = response::reset(headers, self.parts.clock.now().wall)
        {
            self.limiter.pause(wait);
        }
    }

    fn failed(&self, error: &ForwardError) -> Response<Answered> {
        let cause = format_chain(error);
        if matches!(error, ForwardError::RequestBody(_)) {
            return response::refuse(error.status(), &cause);
        }
        if self.reached.failed() {
            tracing::warn!(
                event = "gateway.upstream.failed",
                upstream = self.origin,
                cause,
                "the platform does not answer; callers are told so"
            );
        }
        later(error.status(), format!("the platform at {} does not answer: {cause}", self.origin), SOON)
    }

    /// The current platform token.
    pub(super) fn token(&self) -> Result<Arc<PlatformToken>, Refused> {
        self.parts.source.watch.with(|reading| match &reading.availability {
            Availability::Available(token) => Ok(Arc::clone(token)),
            Availability::Unavailable { reason, retry_after } => {
                Err(Box::new(later(StatusCode::SERVICE_UNAVAILABLE, reason.to_string(), *retry_after)))
            }
        })
    }
}

/// The longest wait for the platform to take requests again that is spent here and not by the caller. The platform counts by the
/// second; what it counts by the minute is the caller's to wait for.
const SOON_TAKEN: Duration = Duration::from_secs(5);

/// When to ask again where the platform does not answer.
const SOON: Duration = Duration::from_secs(2);
