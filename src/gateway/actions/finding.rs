//! Findings about a call, and the errors that strict mode makes of them.

use http::{HeaderName, HeaderValue, StatusCode};
use keyward_telemetry::error_code::ErrorCode;

use crate::api_changelog::Change;
use crate::jsonapi_error::{ErrorSource, JsonApiError};

/// Response header with a finding; may occur several times.
pub(crate) const WARNING_HEADER: HeaderName = HeaderName::from_static("keyward-warning");

/// A remark that a change makes about a call.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// The change.
    pub change: &'static Change,
    /// Message with advice. Contains nothing of the call but names of the history.
    pub text: String,
    /// JSON pointer to the part of the body that is meant.
    pub pointer: Option<String>,
    /// Code of the error that strict mode makes of it, if it has one.
    pub code: Option<ErrorCode>,
    /// True if strict mode refuses the call for it.
    pub blocking: bool,
}

impl Finding {
    pub(super) fn warning(change: &'static Change, text: String) -> Self {
        Self { change, text, pointer: None, code: None, blocking: false }
    }

    /// Formats the header's value: the change's id and the message.
    pub(crate) fn to_header(&self) -> HeaderValue {
        let text = format!("{}: {}", self.change.id, self.text);
        // The messages are constants of this program in visible ASCII.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("invalid text"))
    }
}

/// Returns the errors for which strict mode refuses a call.
pub(crate) fn blocking_errors(findings: &[Finding]) -> Vec<JsonApiError> {
    let refused = findings.iter().filter(|finding| finding.blocking);
    refused
        .map(|finding| JsonApiError {
            code: finding.code,
            source: finding.pointer.clone().map(ErrorSource::Pointer),
            ..JsonApiError::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{} ({})", finding.text, finding.change.id))
        })
        .collect()
}
