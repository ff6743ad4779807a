//! Records of an audit: one for each request, and those by which a chain describes itself.

use std::time::Duration;

use serde::Serialize;

use super::facts::{AuditNote, AuditText};
use super::request::AuditedRequest;

/// A request to keyward and the decision about it. Holds no secret: no query, no header, no body.
#[derive(Debug, Clone)]
pub struct AuditRecord {
    /// `request` before a request is forwarded, `response` when its status is known.
    pub kind: RecordKind,
    /// The request, which its records share.
    pub request: AuditedRequest,
    /// State of the request at this moment.
    pub state: RequestState,
}

/// Members of a record that change while a request is handled.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RequestState {
    /// Decision and its circumstances.
    #[serde(flatten)]
    pub note: AuditNote,
    /// Status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Time from the request to the head of the response, in microseconds.
    #[serde(rename = "latency_us", skip_serializing_if = "Option::is_none", serialize_with = "micros")]
    pub latency: Option<Duration>,
    /// The caller closed its connection before there was a response.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
}

/// Moment of a record in the life of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// The request is about to be forwarded.
    Request,
    /// The response is about to be sent.
    Response,
}

impl RecordKind {
    /// Name in a record.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// Records about the chain itself.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ChainRecord {
    /// A process begins to write.
    Start {
        #[serde(flatten)]
        header: ChainHeader,
        version: &'static str,
        pid: u32,
        /// End of the previous process: `none`, `stopped`, `killed` or `unverified`.
        previous: PreviousEnd,
        /// Bytes of an incomplete line that were removed from the end of the file.
        #[serde(skip_serializing_if = "is_zero")]
        torn_bytes: u64,
    },
    /// Another file or connection begins.
    Continue {
        #[serde(flatten)]
        header: ChainHeader,
    },
    /// Records that could not be written.
    Lost { records: u64 },
    /// The process stops writing in order.
    Stop {},
}

/// Position of a chain at the beginning of a file or connection: it is verified without what came before.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ChainHeader {
    /// Random name of the chain.
    pub(super) chain: AuditText,
    /// MAC of the record before this one.
    pub(super) prev: String,
}

/// End of the process that wrote before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PreviousEnd {
    /// Nothing was written before.
    None,
    /// The last record is that of an orderly stop.
    Stopped,
    /// The last record is another one: the process was killed, or the machine failed.
    Killed,
    /// The last record does not verify with the key, so that a new chain begins.
    Unverified,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::ref_option, reason = "the signature that serde calls")]
fn micros<S: serde::Serializer>(latency: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let micros = latency.map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    micros.serialize(serializer)
}
