//! What is said of a call, and how it is refused in strict mode.

use http::{HeaderName, HeaderValue, StatusCode};

use crate::gateway::api_changelog::Change;
use crate::gateway::jsonapi_error::{ErrorSource, JsonApiError};

/// The header of an answer that says a finding; there may be several.
pub const WARNING_HEADER: HeaderName = HeaderName::from_static("keyward-warning");

/// Something that a change says of a call.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The change.
    pub change: &'static Change,
    /// What it says, and what to do. Holds nothing of the call but names that the history knows.
    pub text: String,
    /// What of the body is meant, as a JSON pointer.
    pub pointer: Option<String>,
    /// Whether strict mode refuses the call for it.
    pub blocking: bool,
}

impl Finding {
    pub(super) fn warning(change: &'static Change, text: String) -> Self {
        Self { change, text, pointer: None, blocking: false }
    }

    /// The header's value: the change's name and the text.
    pub fn to_header(&self) -> HeaderValue {
        let text = format!("{}: {}", self.change.id, self.text);
        // The texts are of this program, in letters that a header takes.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unspeakable"))
    }
}

/// Why strict mode does not send a call; empty, if nothing is against it.
pub fn blocking_errors(findings: &[Finding]) -> Vec<JsonApiError> {
    let refused = findings.iter().filter(|finding| finding.blocking);
    refused
        .map(|finding| JsonApiError {
            source: finding.pointer.clone().map(ErrorSource::Pointer),
            ..JsonApiError::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{} ({})", finding.text, finding.change.id))
        })
        .collect()
}
