//! Audit: a record of each request that keyward serves or refuses, in a chain that shows every later change.
//!
//! A part notes what it knows of a request in the [`AuditedRequest`] of the request; `http::audited` makes the records of it, and
//! [`Auditor`] hands them to the devices. Each device has a thread, a queue of its own, and a chain: the MAC of a record is
//! over its bytes and the MAC of the record before it.

mod options;
mod key;
mod facts;
mod request;
mod record;
mod queue;
mod line;
mod checkpoint;
mod verify;
mod read;
mod device_task;
mod metrics;
mod device;
mod device_report;
mod writer;
mod auditor;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

pub use auditor::{AuditUnavailable, Auditor, DeviceHandle, PendingRecord, RunningDevice};
pub use checkpoint::Checkpoint;
pub use facts::{Attestation, AuditCaller, AuditNote, AuditText, Decision, RequestFacts, redact_path};
pub use key::AuditKey;
pub use metrics::AuditMetrics;
pub use options::{AuditFileOptions, AuditOptions, AuditTarget, Fsync, OnFailure};
pub use read::{AuditFiles, DisplayedRecord, LineSplitter, is_cut_line, list_files, read_lines};
pub use record::{AuditRecord, RecordKind, RequestState};
pub use request::AuditedRequest;
pub use verify::{AuditFinding, LinePosition, Verifier, VerifyReport};

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a token read.
    pub(super) fn record(number: u64) -> AuditRecord {
        let facts = RequestFacts {
            id: number,
            part: "agent",
            listener: "api".into(),
            route: "token",
            method: "GET".to_owned(),
            path: "/agent/v1/token".to_owned(),
            caller: AuditCaller { uid: Some(1000), gid: Some(1000), pid: Some(42), ..AuditCaller::default() },
        };
        let session = Some("web".into());
        let accessor = Some("an-accessor".into());
        let state = RequestState {
            note: AuditNote { session, accessor, ..AuditNote::default() },
            status: Some(200),
            latency: Some(std::time::Duration::from_micros(12)),
            aborted: false,
        };
        AuditRecord { kind: RecordKind::Response, request: AuditedRequest::new(facts), state }
    }
}
