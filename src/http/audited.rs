//! Wraps a service so that each of its requests is recorded: before it is forwarded, and with its response.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::server::{Peer, ResponseFuture};
use crate::audit::{AuditCaller, AuditNote, AuditRecord, AuditSlot, Auditor, Decision, RecordKind, redact_path};

/// How the requests of one listener are recorded.
pub(crate) struct AuditedService<B> {
    pub(crate) auditor: Auditor,
    /// `agent`, `acl` or `gateway`.
    pub(crate) part: &'static str,
    /// Name of the listener.
    pub(crate) listener: Arc<str>,
    /// Use of a path; `None` for one that is recorded only when it is refused.
    pub(crate) route: fn(&str) -> Option<&'static str>,
    /// The part decides while it responds, and its status tells the decision.
    pub(crate) decides_by_status: bool,
    /// Builds the 503 for a request whose record cannot be kept.
    pub(crate) unavailable: fn(&str) -> Response<B>,
}

impl<B: Unpin + Send + 'static> AuditedService<B> {
    /// Wraps a service. Without an audit device its requests pass through unchanged.
    pub(crate) fn wrap<S>(
        self,
        service: S,
    ) -> impl Fn(Peer, Request<Incoming>) -> ResponseFuture<B> + Clone + Send + Sync + 'static
    where
        S: Fn(Peer, Request<Incoming>) -> ResponseFuture<B> + Clone + Send + Sync + 'static,
    {
        let this = Arc::new(self);
        move |peer, request| {
            if this.auditor.is_on() { this.respond(&service, peer, request) } else { service(peer, request) }
        }
    }

    fn respond(
        self: &Arc<Self>,
        service: &impl Fn(Peer, Request<Incoming>) -> ResponseFuture<B>,
        peer: Peer,
        mut request: Request<Incoming>,
    ) -> ResponseFuture<B> {
        let route = (self.route)(request.uri().path());
        let slot = AuditSlot::default();
        let draft = AuditedRequest::new(self, &peer, &request, (route.unwrap_or("other"), slot.clone()));
        request.extensions_mut().insert(slot);
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
        mut draft: AuditedRequest<B>,
        is_recorded: bool,
        response: Response<B>,
    ) -> ResponseFuture<B> {
        draft.is_done = true;
        if response.status().is_client_error() || response.status().is_server_error() {
            draft.slot.note(|note| note.decision = Decision::Refused);
        }
        let is_refused = draft.slot.get().decision == Decision::Refused;
        if !is_recorded && !is_refused {
            return ResponseFuture::ready(response);
        }
        let record = draft.record(RecordKind::Response, Some(response.status().as_u16()));
        if is_refused {
            self.auditor.record_refusal(record);
            return ResponseFuture::ready(response);
        }
        let kept = self.auditor.admit(record);
        if kept.is_certain() {
            return ResponseFuture::ready(response);
        }
        let this = Arc::clone(self);
        ResponseFuture::waiting(async move {
            match kept.wait().await {
                Ok(()) => response,
                Err(error) => (this.unavailable)(&error.to_string()),
            }
        })
    }
}

/// Head of a request, as it is recorded. Dropped before its response, it records that.
struct AuditedRequest<B: 'static> {
    service: Arc<AuditedService<B>>,
    started: Instant,
    id: u64,
    route: &'static str,
    method: String,
    path: String,
    caller: AuditCaller,
    slot: AuditSlot,
    is_done: bool,
}

impl<B> AuditedRequest<B> {
    fn new(
        service: &Arc<AuditedService<B>>,
        peer: &Peer,
        request: &Request<Incoming>,
        (route, slot): (&'static str, AuditSlot),
    ) -> Self {
        Self {
            service: Arc::clone(service),
            started: Instant::now(),
            id: service.auditor.next_id(),
            route,
            method: request.method().as_str().chars().take(LONGEST_METHOD).collect(),
            path: redact_path(request.uri().path()),
            caller: peer.into(),
            slot,
            is_done: false,
        }
    }

    fn record(&self, kind: RecordKind, status: Option<u16>) -> AuditRecord {
        let note: AuditNote = self.slot.get();
        let uid = self.caller.uid.or(note.attested.as_ref().and_then(|attested| attested.uid));
        let caller = AuditCaller { uid, attested: note.attested.clone(), ..self.caller.clone() };
        AuditRecord {
            kind,
            id: self.id,
            part: self.service.part,
            listener: Arc::clone(&self.service.listener).into(),
            route: self.route,
            method: self.method.clone(),
            path: self.path.clone(),
            caller,
            note,
            status,
            latency: status.map(|_| self.started.elapsed()),
            aborted: false,
        }
    }

    /// Ends the request without a record of its response.
    fn discard(mut self) {
        self.is_done = true;
    }

    fn finish(mut self, status: http::StatusCode) {
        self.is_done = true;
        if self.service.decides_by_status && status.is_client_error() {
            self.slot.note(|note| note.decision = Decision::Refused);
        }
        self.service.auditor.record_response(self.record(RecordKind::Response, Some(status.as_u16())));
    }
}

impl<B> Drop for AuditedRequest<B> {
    fn drop(&mut self) {
        if !self.is_done {
            let record = AuditRecord { aborted: true, ..self.record(RecordKind::Response, None) };
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
            Peer::Tcp(address) => Self { address: Some(address), ..Self::default() },
        }
    }
}

/// Longest recorded method, in characters.
const LONGEST_METHOD: usize = 16;
