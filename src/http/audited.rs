//! Wraps a service so that each of its requests is recorded: before it is forwarded, and with its response.

use std::sync::Arc;

use http::{Request, Response};
use keyward_telemetry::audit::{
    AuditCaller, AuditRecord, AuditedRequest, Auditor, Decision, RecordKind, RequestFacts, RequestState, redact_path,
};
use tokio::time::Instant;

use super::server::{IncomingBody, Peer, RefusedHeads, ResponseFuture};

/// Records the requests of one listener in the audit.
pub struct AuditedService<B> {
    /// The audit.
    pub auditor: Auditor,
    /// `agent`, `acl` or `gateway`.
    pub part: &'static str,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// Use of a path; `None` for one that is recorded only when it is refused.
    pub route: fn(&str) -> Option<&'static str>,
    /// The handler decides while it responds; its status shows the decision. Use for services without an explicit admit
    /// step.
    pub decides_by_status: bool,
    /// Builds the 503 for a request whose record cannot be kept.
    pub unavailable: fn(&str) -> Response<B>,
}

impl<B> std::fmt::Debug for AuditedService<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditedService")
            .field("part", &self.part)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl<B: Unpin + Send + 'static> AuditedService<B> {
    /// Wraps a service. Without an audit device its requests pass through unchanged.
    pub fn wrap<S>(
        self,
        service: S,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<B> + Clone + Send + Sync + 'static
    where
        S: Fn(Peer, Request<IncomingBody>) -> ResponseFuture<B> + Clone + Send + Sync + 'static,
    {
        let this = Arc::new(self);
        move |peer, request| {
            if this.auditor.is_on() { this.respond(&service, peer, request) } else { service(peer, request) }
        }
    }

    fn respond(
        self: &Arc<Self>,
        service: &impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<B>,
        peer: Peer,
        mut request: Request<IncomingBody>,
    ) -> ResponseFuture<B> {
        let route = (self.route)(request.uri().path());
        let draft = ResponseDraft::new(self, &peer, &request, route.unwrap_or("other"));
        request.extensions_mut().insert(draft.request.clone());
        match service(peer, request) {
            ResponseFuture::Ready(Some(response)) => self.settle(draft, route.is_some(), response),
            ResponseFuture::Waiting(inner) if route.is_some() => {
                let this = Arc::clone(self);
                ResponseFuture::waiting(async move {
                    let admitted = this.auditor.admit(draft.record(RecordKind::Request, None)).wait().await;
                    if let Err(error) = admitted {
                        draft.discard();
                        return (this.unavailable)(&error.to_string());
                    }
                    let response = inner.await;
                    draft.finish(response.status());
                    response
                })
            }
            other => {
                draft.discard();
                other
            }
        }
    }

    /// Records a response that was ready at once: nothing was forwarded for it.
    fn settle(
        self: &Arc<Self>,
        mut draft: ResponseDraft<B>,
        is_recorded: bool,
        response: Response<B>,
    ) -> ResponseFuture<B> {
        draft.is_done = true;
        if response.status().is_client_error() || response.status().is_server_error() {
            draft.request.note(|note| note.decision = Decision::Refused);
        }
        let is_refused = draft.request.current_note().decision == Decision::Refused;
        if !is_recorded && !is_refused {
            return ResponseFuture::ready(response);
        }
        let record = draft.record(RecordKind::Response, Some(response.status().as_u16()));
        if is_refused {
            self.auditor.record_refusal(record);
            return ResponseFuture::ready(response);
        }
        let pending = self.auditor.admit(record);
        if pending.is_certain() {
            return ResponseFuture::ready(response);
        }
        let this = Arc::clone(self);
        ResponseFuture::waiting(async move {
            match pending.wait().await {
                Ok(()) => response,
                Err(error) => (this.unavailable)(&error.to_string()),
            }
        })
    }
}

/// Records the requests of one listener whose heads the HTTP server refuses, so that no service sees them. Their method and
/// path are unknown.
pub fn record_refused_heads(auditor: Auditor, part: &'static str, listener: Arc<str>) -> RefusedHeads {
    RefusedHeads::new(move |peer, status, reason| {
        if !auditor.is_on() {
            return;
        }
        let request = AuditedRequest::new(RequestFacts {
            id: auditor.next_id(),
            part,
            listener: Arc::clone(&listener).into(),
            route: "other",
            method: String::new(),
            path: redact_path(""),
            caller: peer.into(),
        });
        request.refuse(reason);
        let state = RequestState { note: request.current_note(), status: Some(status), latency: None, aborted: false };
        auditor.record_refusal(AuditRecord { kind: RecordKind::Response, request, state });
    })
}

/// Record of a response that is still to come. Dropped before that, it records that the request was aborted.
struct ResponseDraft<B: 'static> {
    service: Arc<AuditedService<B>>,
    started: Instant,
    request: AuditedRequest,
    is_done: bool,
}

impl<B> ResponseDraft<B> {
    fn new(
        service: &Arc<AuditedService<B>>,
        peer: &Peer,
        request: &Request<IncomingBody>,
        route: &'static str,
    ) -> Self {
        let facts = RequestFacts {
            id: service.auditor.next_id(),
            part: service.part,
            listener: Arc::clone(&service.listener).into(),
            route,
            method: request.method().as_str().chars().take(MAX_METHOD_LENGTH).collect(),
            path: redact_path(request.uri().path()),
            caller: peer.into(),
        };
        let service = Arc::clone(service);
        let request = AuditedRequest::new(facts);
        Self { service, started: Instant::now(), request, is_done: false }
    }

    fn record(&self, kind: RecordKind, status: Option<u16>) -> AuditRecord {
        let latency = status.map(|_| self.started.elapsed());
        let state = RequestState { note: self.request.current_note(), status, latency, aborted: false };
        AuditRecord { kind, request: self.request.clone(), state }
    }

    /// Ends the request without a record of its response.
    fn discard(mut self) {
        self.is_done = true;
    }

    fn finish(mut self, status: http::StatusCode) {
        self.is_done = true;
        if self.service.decides_by_status && status.is_client_error() {
            self.request.note(|note| note.decision = Decision::Refused);
        }
        self.service.auditor.record_response(self.record(RecordKind::Response, Some(status.as_u16())));
    }
}

impl<B> Drop for ResponseDraft<B> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut record = self.record(RecordKind::Response, None);
            record.state.aborted = true;
            self.service.auditor.record_response(record);
        }
    }
}

impl From<&Peer> for AuditCaller {
    fn from(peer: &Peer) -> Self {
        match *peer {
            Peer::Unix { uid, gid, pid, .. } => {
                Self { uid: Some(uid), gid: Some(gid), pid: Some(pid), ..Self::default() }
            }
            Peer::Tcp { address, .. } => Self { address: Some(address), ..Self::default() },
        }
    }
}

/// Longest recorded method, in characters.
const MAX_METHOD_LENGTH: usize = 16;
