//! Wraps a service so that each of its requests is recorded: before it is forwarded, and with its response.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::server::{Peer, ResponseFuture};
use crate::audit::{
    AuditCaller, AuditNote, AuditRecord, AuditSlot, Auditor, Decision, NotKept, RecordKind, redact_path,
};

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
        let mut draft = AuditedRequest::new(self, &peer, &request, route.unwrap_or("other"));
        request.extensions_mut().insert(slot.clone());
        match service(peer, request) {
            ResponseFuture::Ready(Some(response)) => self.settle(draft, &slot, route.is_some(), response),
            ResponseFuture::Waiting(inner) if route.is_some() => {
                let this = Arc::clone(self);
                draft.slot = slot;
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
        slot: &AuditSlot,
        is_recorded: bool,
        response: Response<B>,
    ) -> ResponseFuture<B> {
        draft.is_done = true;
        draft.slot = slot.clone();
        if response.status().is_client_error() || response.status().is_server_error() {
            slot.note(|note| note.decision = Decision::Refused);
        }
        let is_refused = slot.get().decision == Decision::Refused;
        if !is_recorded && !is_refused {
            return ResponseFuture::ready(response);
        }
        let record = draft.record(RecordKind::Response, Some(response.status().as_u16()));
        if is_refused {
            self.auditor.note_refusal(record);
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
    fn new(service: &Arc<AuditedService<B>>, peer: &Peer, request: &Request<Incoming>, route: &'static str) -> Self {
        Self {
            service: Arc::clone(service),
            started: Instant::now(),
            id: service.auditor.next_id(),
            route,
            method: request.method().as_str().chars().take(LONGEST_METHOD).collect(),
            path: redact_path(request.uri().path()),
            caller: caller_of(peer),
            slot: AuditSlot::default(),
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
        self.service.auditor.note_response(self.record(RecordKind::Response, Some(status.as_u16())));
    }
}

impl<B> Drop for AuditedRequest<B> {
    fn drop(&mut self) {
        if !self.is_done {
            let record = AuditRecord { aborted: true, ..self.record(RecordKind::Response, None) };
            self.service.auditor.note_response(record);
        }
    }
}

fn caller_of(peer: &Peer) -> AuditCaller {
    match *peer {
        Peer::Unix { uid, gid, pid, .. } => {
            AuditCaller { uid: Some(uid), gid: Some(gid), pid: Some(pid), ..AuditCaller::default() }
        }
        Peer::Tcp(address) => AuditCaller { address: Some(address), ..AuditCaller::default() },
    }
}

/// Record of a connection of the agent that is no HTTP.
pub(crate) struct StreamRecord {
    auditor: Auditor,
    record: Option<AuditRecord>,
}

impl StreamRecord {
    /// Prepares the record; `refused` is the reason of a refusal. Without an audit device it does nothing.
    pub(crate) fn new(
        auditor: &Auditor,
        listener: &str,
        route: &'static str,
        (peer, path): (&Peer, &str),
        refused: Option<&'static str>,
    ) -> Self {
        let decision = if refused.is_some() { Decision::Refused } else { Decision::Granted };
        let record = auditor.is_on().then(|| AuditRecord {
            kind: RecordKind::Response,
            id: auditor.next_id(),
            part: "agent",
            listener: listener.into(),
            route,
            method: String::new(),
            path: redact_path(path),
            caller: caller_of(peer),
            note: AuditNote { decision, rule: refused.map(Into::into), ..AuditNote::default() },
            status: None,
            latency: None,
            aborted: false,
        });
        Self { auditor: auditor.clone(), record }
    }

    /// Records a refusal.
    pub(crate) fn note_refusal(self) {
        if let Some(record) = self.record {
            self.auditor.note_refusal(record);
        }
    }

    /// Records a grant, which may go on only once the record is kept.
    ///
    /// # Errors
    /// A device with `fail = "closed"` cannot keep the record.
    pub(crate) async fn admit(self) -> Result<(), NotKept> {
        match self.record {
            Some(record) => self.auditor.admit(record).wait().await,
            None => Ok(()),
        }
    }
}

/// Longest recorded method, in characters.
const LONGEST_METHOD: usize = 16;
