//! What the history means for one call: a deprecated call and what replaces it, a body that says what a row warns of, a
//! call that the server cannot have, a list that comes in pages. Decides without IO; who forwards does what is said.

// 0: what is said
mod reported_call;
mod finding;
mod segment;

// 1: what is known
pub mod organization;
mod deprecated;
mod calls;
mod body;
pub mod pages;

use http::{Method, StatusCode};

pub use deprecated::{DeprecatedCall, Replacement};
pub use finding::{Finding, WARNING_HEADER, blocking_errors};
pub use reported_call::ReportedCall;

use super::api_changelog::ChangeKind;
use super::availability::ServerInfo;
use segment::Segment;

/// The path that the platform's API is below.
pub const BASE_PATH: &str = "/api/v2";

/// The largest JSON body that is looked into, in bytes.
pub const MAX_BODY: usize = 256 * 1024;

/// What is done about deprecated calls that have an exact replacement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeprecatedCallMode {
    /// Nothing: they are sent as they are and not spoken of, nor are deprecated attributes.
    Off,
    /// They are sent as they are, counted, and answered with `Deprecation` and `Link`.
    #[default]
    Warn,
    /// As `Warn`; where the server no longer has the call, its replacement is sent once.
    Fallback,
    /// As `Warn`, and the replacement is sent at once.
    Always,
}

/// How calls are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionOptions {
    /// What is done about deprecated calls.
    pub deprecated: DeprecatedCallMode,
    /// Whether a call that a row refuses is answered with 422 instead of a warning.
    pub strict: bool,
    /// The `:registry_name` of replacements. The older calls are about private modules alone.
    pub registry_name: String,
    /// The `:namespace` of replacements; none: the organization, as for all private modules.
    pub namespace: Option<String>,
    /// The organization of calls that name none and whose OAuth token does not tell.
    pub organization: Option<String>,
    /// Whether the pages of the lists of [`pages::merges`] are merged for everyone.
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

/// A call as it came.
#[derive(Debug, Clone, Copy)]
pub struct ApiCall<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its raw path, from the root.
    pub path: &'a str,
    /// Its raw query, empty if there is none.
    pub query: &'a str,
}

impl<'a> ApiCall<'a> {
    /// The path below the API's base path.
    fn path_below_base(self) -> Option<&'a str> {
        self.path.strip_prefix(BASE_PATH).filter(|path| path.starts_with('/'))
    }
}

/// Judges calls.
#[derive(Debug, Clone)]
pub struct CallAssessor {
    options: ActionOptions,
    registry_name: Option<Segment>,
    namespace: Option<Segment>,
}

/// What is known of a call before its body is read.
#[derive(Debug, Default)]
pub struct CallFindings {
    /// That it is deprecated. Never in the mode `Off`.
    pub deprecated: Option<DeprecatedCall>,
    /// What else there is to say.
    pub findings: Vec<Finding>,
    /// Whether [`CallAssessor::read`] may have something to say of its JSON body.
    pub reads_body: bool,
}

impl CallAssessor {
    /// Judges by these options.
    pub fn new(options: ActionOptions) -> Self {
        let registry_name = Segment::encode(&options.registry_name);
        let namespace = options.namespace.as_deref().and_then(Segment::encode);
        Self { options, registry_name, namespace }
    }

    /// The options that it judges by.
    pub fn options(&self) -> &ActionOptions {
        &self.options
    }

    /// What is known of a call for this server, its body unread.
    pub fn assess_call(&self, call: ApiCall<'_>, server: &ServerInfo) -> CallFindings {
        let Some(path) = call.path_below_base() else { return CallFindings::default() };
        let deprecated = match self.options.deprecated {
            DeprecatedCallMode::Off => None,
            DeprecatedCallMode::Warn | DeprecatedCallMode::Fallback | DeprecatedCallMode::Always => {
                deprecated::find(call, path, self.registry_name.as_ref(), self.namespace.as_ref())
            }
        };
        CallFindings {
            deprecated,
            findings: calls::findings(call, path, server),
            reads_body: body::may_have_findings(call, path),
        }
    }

    /// The findings in a JSON body. There are none in a body that is no JSON:API document, or longer than [`MAX_BODY`]; none of
    /// deprecated attributes in the mode `Off`.
    pub fn assess_body(&self, call: ApiCall<'_>, body: &[u8], server: &ServerInfo) -> Vec<Finding> {
        let mut findings =
            call.path_below_base().map(|path| body::findings(call, path, body, server)).unwrap_or_default();
        if self.options.deprecated == DeprecatedCallMode::Off {
            findings.retain(|finding| finding.change.kind != ChangeKind::Deprecated);
        }
        findings
    }

    /// Whether an answer with this status to a deprecated call says that the server no longer has the call, and its
    /// replacement is tried once. Such an answer changed nothing, so this is safe for writes.
    pub fn is_fallback_status(&self, status: StatusCode) -> bool {
        let gone = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE);
        self.options.deprecated == DeprecatedCallMode::Fallback && gone
    }
}

#[cfg(test)]
mod tests;
