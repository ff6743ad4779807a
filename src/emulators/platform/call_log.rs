//! Log of requests by caller, without tokens and query strings.

use std::collections::VecDeque;

use http::Method;

/// One completed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// HTTP method.
    pub method: Method,
    /// Route that matched, such as `/api/v2/workspaces/{workspace}`; empty if none did.
    pub route: String,
    /// Path; empty if the path itself is a secret.
    pub path: String,
    /// Token of the request.
    pub token: PresentedToken,
    /// Status of the response.
    pub status: u16,
    /// `User-Agent`.
    pub agent: String,
}

/// Token of a request, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresentedToken {
    /// No token.
    Absent,
    /// A token that the platform does not know, or no longer.
    Unknown,
    /// Id of a valid token.
    Known(String),
}

impl PresentedToken {
    /// Returns the id of a valid token, or `absent` or `unknown`.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Absent => "absent",
            Self::Unknown => "unknown",
            Self::Known(id) => id,
        }
    }
}

/// Ring buffer of the last requests.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    calls: VecDeque<RecordedCall>,
    total: u64,
}

/// Capacity of the log.
const MAX_CALLS: usize = 20_000;

impl CallLog {
    pub(super) fn record(&mut self, call: RecordedCall) {
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
        self.total += 1;
    }

    pub(super) fn calls(&self) -> Vec<RecordedCall> {
        self.calls.iter().cloned().collect()
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
