//! Responses that are held back until there is the token that the caller waits for, and the bound of such callers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_http::server::ResponseFuture;
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::AuditedRequest;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::token::{ServedSession, TokenReader, note_token};
use crate::caller_tokens::PendingProcessToken;
use crate::callers::WaitingCaller;
use crate::json_response::{Errors, retry_later};
use crate::token::TokenWatch;

/// A request for a token that waits.
pub(super) struct TokenWait {
    /// Name of the session.
    pub(super) session: Arc<str>,
    /// Generation that the caller already has.
    pub(super) after: Option<String>,
    /// Longest wait.
    pub(super) wait: Duration,
    /// The caller, whose process may change meanwhile; `None` without callers.
    pub(super) caller: Option<WaitingCaller>,
    /// The request as its audit records it; `None` without an audit.
    pub(super) audited: Option<AuditedRequest>,
    /// Cancelled when the listener stops.
    pub(super) stop: CancellationToken,
}

impl TokenWait {
    /// Responds with the token of a session, or with the one that a caller's processes share. Both are created without a request.
    pub(super) async fn respond_for_session(self, served: ServedSession) -> Response<Full<Bytes>> {
        let _waiting = served.handle.refresh_signal.demand().wait();
        let response = Arc::clone(&served.reader).wait(self.after.clone(), self.wait, self.stop.clone()).await;
        self.note(&served.handle.watch);
        self.check_caller(response)
    }

    /// Responds with the token of a process, which is created because it is requested.
    pub(super) async fn respond_for_process(self, token: PendingProcessToken, clock: Clock) -> Response<Full<Bytes>> {
        let reader = |watch: &TokenWatch| TokenReader::new(self.session.to_string(), watch.clone(), clock.clone());
        tokio::select! {
            () = token.wait(|watch| reader(watch).has_changed(self.after.as_deref())) => {}
            () = tokio::time::sleep(self.wait) => {}
            () = self.stop.cancelled() => {}
        }
        let response = match token.resolve() {
            Ok(token) => {
                self.note(&token.handle.watch);
                reader(&token.handle.watch).now()
            }
            Err(refusal) => {
                self.audited.iter().for_each(|audited| audited.refuse(refusal.reason));
                refusal.to_response()
            }
        };
        self.check_caller(response)
    }

    fn note(&self, watch: &TokenWatch) {
        self.audited.iter().for_each(|audited| note_token(audited, &self.session, watch));
    }

    fn check_caller(&self, response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
        match self.caller.as_ref().map_or(Ok(()), WaitingCaller::check) {
            Ok(()) => response,
            Err(refusal) => refusal.to_response(),
        }
    }
}

/// Slots for waiting callers, so that they do not take the connections that others need.
#[derive(Debug)]
pub(super) struct WaitSlots(Arc<Semaphore>);

impl WaitSlots {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Returns a future for `response` that holds a slot until it completes, or a 429 at once if there is no slot left.
    pub(super) fn wait(
        &self,
        response: impl Future<Output = Response<Full<Bytes>>> + Send + 'static,
    ) -> ResponseFuture<Full<Bytes>> {
        let Ok(slot) = Arc::clone(&self.0).try_acquire_owned() else {
            let errors =
                Errors { errors: ["too many callers wait at this listener; retry later, or without \"wait\""] };
            return ResponseFuture::ready(retry_later(StatusCode::TOO_MANY_REQUESTS, &errors, RETRY_AFTER));
        };
        ResponseFuture::waiting(async move {
            let _slot = slot;
            response.await
        })
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(5);
