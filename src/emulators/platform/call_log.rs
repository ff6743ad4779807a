//! What the platform was asked, and by whom. No token and no query string is kept.

use std::collections::VecDeque;

use http::Method;

/// One request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// Its method.
    pub method: Method,
    /// The route that it met, such as `/api/v2/workspaces/{workspace}`; empty where it met none.
    pub route: String,
    /// Its path; empty where the path itself is a secret.
    pub path: String,
    /// The token that it came with.
    pub token: PresentedToken,
    /// What it was answered with.
    pub status: u16,
    /// Its `User-Agent`.
    pub agent: String,
}

/// The token of a request, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresentedToken {
    /// No token.
    Absent,
    /// A token that the platform does not know (any more).
    Unknown,
    /// A good one: its id.
    Known(String),
}

/// The last requests.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    calls: VecDeque<RecordedCall>,
    total: u64,
}

/// Older ones are forgotten.
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
