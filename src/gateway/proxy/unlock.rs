//! Unlocking of a workspace whose new state the platform still processes. The platform refuses that for a moment after each
//! upload. Recent releases of Terraform repeat the call; OpenTofu and older ones end with a workspace that stays locked.

use std::time::Duration;

use http::{Method, StatusCode};

use super::upstream_call::{CallOutcome, PlatformBody, UpstreamCall};

/// Waits before an unlock is repeated.
pub(super) const UNLOCK_RETRIES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(4),
];

/// Part of the platform's message. go-tfe recognizes the error by it too.
const STILL_PENDING: &[u8] = b"latest state version is still pending";

/// Returns true for the call that unlocks a workspace. A forced unlock does not wait for the state.
pub(super) fn is_unlock(call: &UpstreamCall) -> bool {
    let mut segments = call.target.path().strip_prefix("/api/v2/workspaces/").unwrap_or_default().split('/');
    let shape = (segments.next(), segments.next(), segments.next(), segments.next());
    call.method == Method::POST && matches!(shape, (Some(_), Some("actions"), Some("unlock"), None))
}

/// Returns true if a buffered response says that the workspace's state is not ready. The call changed nothing then.
pub(super) fn is_state_pending(outcome: &CallOutcome) -> bool {
    let refused = matches!(outcome.response.status(), StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY);
    let PlatformBody::Buffered(body) = outcome.response.body() else { return false };
    refused && memchr::memmem::find(body, STILL_PENDING).is_some()
}
