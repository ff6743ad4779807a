//! What a failed login means. Auth methods answer most refusals with HTTP 500, so the text decides.

use crate::agent::upstream::{CallError, is_outage};

/// What a failed login means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Someone must change a setting or a right first.
    Refused,
    /// It may pass by itself.
    Unavailable,
    /// The request was wrong or lacked something.
    Bug,
    /// The proof is expired.
    Expired,
    /// The proof is not valid yet.
    NotYet,
}

/// The class of a failed login, and what may mend it.
pub fn classify(error: &CallError) -> (Class, Option<&'static str>) {
    match error {
        CallError::Status { status, .. } if is_outage(*status) && *status != 500 => (Class::Unavailable, None),
        CallError::Status { .. } | CallError::LimitedUse { .. } => (Class::Refused, None),
        CallError::Unreachable { .. } | CallError::TimedOut { .. } | CallError::Garbage { .. } => {
            (Class::Unavailable, None)
        }
    }
}
