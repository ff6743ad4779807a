//! Records of the connections of one listener for systemd, which are no HTTP.

use keyward_http::server::Peer;
use keyward_telemetry::audit::{
    AuditNote, AuditRecord, AuditUnavailable, AuditedRequest, Auditor, Decision, RecordKind, RequestFacts,
    RequestState, redact_path,
};

use super::PeerName;

/// Record of a connection. Without an audit device there is none.
pub(super) struct ConnectionRecord<'a> {
    auditor: &'a Auditor,
    record: Option<AuditRecord>,
}

impl<'a> ConnectionRecord<'a> {
    /// Prepares the record; `refused` is the reason of a refusal.
    pub(super) fn new(
        auditor: &'a Auditor,
        listener: &str,
        peer: &Peer,
        name: Option<&PeerName<'_>>,
        refused: Option<&'static str>,
    ) -> Self {
        let path = name.map(|name| format!("/unit/{}/{}", name.unit, name.credential)).unwrap_or_default();
        let decision = if refused.is_some() { Decision::Refused } else { Decision::Granted };
        let record = auditor.is_on().then(|| {
            let facts = RequestFacts {
                id: auditor.next_id(),
                part: "agent",
                listener: listener.into(),
                route: "systemd_credential",
                method: String::new(),
                path: redact_path(&path),
                caller: peer.into(),
            };
            let note = AuditNote { decision, rule: refused.map(Into::into), ..AuditNote::default() };
            let state = RequestState { note, ..RequestState::default() };
            AuditRecord { kind: RecordKind::Response, request: AuditedRequest::new(facts), state }
        });
        Self { auditor, record }
    }

    /// Records a refusal.
    pub(super) fn record_refusal(self) {
        if let Some(record) = self.record {
            self.auditor.record_refusal(record);
        }
    }

    /// Records a grant. The credential may be sent only once the record is kept.
    ///
    /// # Errors
    /// A device with `fail = "closed"` cannot keep the record.
    pub(super) async fn admit(self) -> Result<(), AuditUnavailable> {
        match self.record {
            Some(record) => self.auditor.admit(record).wait().await,
            None => Ok(()),
        }
    }
}
