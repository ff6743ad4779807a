//! Applies the API history to one call: deprecated calls and their replacements, bodies with deprecated attributes,
//! calls that the server lacks, and lists that come in pages. Pure decisions; the proxy executes them.

// 0: results
mod reported_call;
mod finding;
mod segment;

// 1: rules
pub(crate) mod organization;
mod deprecated;
mod calls;
mod body;
pub(crate) mod pages;

use http::{Method, StatusCode};

pub(crate) use deprecated::{DeprecatedCall, Replacement};
pub(crate) use finding::{Finding, WARNING_HEADER, blocking_errors};
pub(crate) use reported_call::ReportedCall;

use super::api_changelog::ChangeKind;
use super::availability::{Availability, ServerInfo};
use segment::Segment;

/// Base path of the platform's API.
pub(crate) const BASE_PATH: &str = "/api/v2";

/// Largest JSON body that is inspected, in bytes.
pub(crate) const MAX_BODY: usize = 256 * 1024;

/// Handling of deprecated calls that have an exact replacement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeprecatedCallMode {
    /// Sends them as they are, without warnings, also about deprecated attributes.
    Off,
    /// Sends them as they are, counts them, and adds `Deprecation` and `Link` to the response.
    #[default]
    Warn,
    /// As `Warn`; if the server no longer has the call, sends its replacement once.
    Fallback,
    /// As `Warn`, and sends the replacement at once.
    Always,
}

/// Settings of the assessment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionOptions {
    /// Handling of deprecated calls.
    pub deprecated: DeprecatedCallMode,
    /// True if a refused call is answered with 422 instead of a warning.
    pub strict: bool,
    /// `:registry_name` of replacements. The old calls are about private modules only.
    pub registry_name: String,
    /// `:namespace` of replacements; `None` for the organization, as for all private modules.
    pub namespace: Option<String>,
    /// Organization of calls that name none and whose OAuth token does not lead to one.
    pub organization: Option<String>,
    /// True if pages of the lists of [`pages::is_mergeable`] are merged for every caller.
    pub merge_pages: bool,
}

impl Default for ActionOptions {
    fn default() -> Self {
        Self {
            deprecated: DeprecatedCallMode::default(),
            strict: false,
            registry_name: "private".to_owned(),
            namespace: None,
            organization: None,
            merge_pages: false,
        }
    }
}

/// A call as received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiCall<'a> {
    /// HTTP method.
    pub method: &'a Method,
    /// Raw path, from the root.
    pub path: &'a str,
    /// Raw query; empty if there is none.
    pub query: &'a str,
}

impl<'a> ApiCall<'a> {
    /// Returns the path below the API's base path.
    fn path_below_base(self) -> Option<&'a str> {
        self.path.strip_prefix(BASE_PATH).filter(|path| path.starts_with('/'))
    }
}

/// Assesses calls.
#[derive(Debug, Clone)]
pub(crate) struct CallAssessor {
    options: ActionOptions,
    registry_name: Option<Segment>,
    namespace: Option<Segment>,
}

/// Assessment of a call before its body is read.
#[derive(Debug, Default)]
pub(crate) struct CallFindings {
    /// Set if the call is deprecated; never in the mode `Off`.
    pub deprecated: Option<DeprecatedCall>,
    /// Other findings.
    pub findings: Vec<Finding>,
    /// True if [`CallAssessor::assess_body`] may have findings in its JSON body.
    pub reads_body: bool,
}

impl CallAssessor {
    /// Creates an assessor with these options.
    pub(crate) fn new(options: ActionOptions) -> Self {
        let registry_name = Segment::encode(&options.registry_name);
        let namespace = options.namespace.as_deref().and_then(Segment::encode);
        Self { options, registry_name, namespace }
    }

    /// Returns the options.
    pub(crate) fn options(&self) -> &ActionOptions {
        &self.options
    }

    /// Assesses a call to this server, without its body.
    pub(crate) fn assess_call(&self, call: ApiCall<'_>, server: &ServerInfo) -> CallFindings {
        let Some(path) = call.path_below_base() else { return CallFindings::default() };
        let deprecated = match self.options.deprecated {
            DeprecatedCallMode::Off => None,
            DeprecatedCallMode::Warn | DeprecatedCallMode::Fallback | DeprecatedCallMode::Always => {
                deprecated::find(call, path, self.registry_name.as_ref(), self.namespace.as_ref())
                    .filter(|call| Availability::for_change(call.change, server) != Availability::Unavailable)
            }
        };
        CallFindings {
            deprecated,
            findings: calls::findings(call, path, server),
            reads_body: body::may_have_findings(call, path),
        }
    }

    /// Assesses a JSON body. Returns nothing for a body that is not a JSON:API document or longer than [`MAX_BODY`], and
    /// no deprecated attributes in the mode `Off`.
    pub(crate) fn assess_body(&self, call: ApiCall<'_>, body: &[u8], server: &ServerInfo) -> Vec<Finding> {
        let mut findings =
            call.path_below_base().map(|path| body::findings(call, path, body, server)).unwrap_or_default();
        if self.options.deprecated == DeprecatedCallMode::Off {
            findings.retain(|finding| finding.change.kind != ChangeKind::Deprecated);
        }
        findings
    }

    /// Returns true if this status of a deprecated call means that the server no longer has it, so that its replacement
    /// is tried once. Such a response changed nothing, so this is safe for writes.
    pub(crate) fn is_fallback_status(&self, status: StatusCode) -> bool {
        let is_missing = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE);
        self.options.deprecated == DeprecatedCallMode::Fallback && is_missing
    }
}

#[cfg(test)]
mod tests;
