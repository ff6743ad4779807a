//! What is said of a call, and how it is refused in strict mode.

use http::{HeaderName, HeaderValue, StatusCode};

use crate::gateway::api_changelog::Change;
use crate::gateway::jsonapi_error::{Refusal, Source};

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
    pub refusable: bool,
}

impl Finding {
    pub(super) fn warning(change: &'static Change, text: String) -> Self {
        Self { change, text, pointer: None, refusable: false }
    }

    /// The header's value: the change's name and the text.
    pub fn header(&self) -> HeaderValue {
        let text = format!("{}: {}", self.change.id, self.text);
        // The texts are of this program, in letters that a header takes.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unspeakable"))
    }
}

/// Why strict mode does not send a call; empty, if nothing is against it.
pub fn refusals(findings: &[Finding]) -> Vec<Refusal> {
    let refused = findings.iter().filter(|finding| finding.refusable);
    refused
        .map(|finding| Refusal {
            source: finding.pointer.clone().map(Source::Pointer),
            ..Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{} ({})", finding.text, finding.change.id))
        })
        .collect()
}
