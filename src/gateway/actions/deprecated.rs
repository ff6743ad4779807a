//! Deprecated calls and their replacements.

use std::sync::LazyLock;

use http::{HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::organization::OrganizationHint;
use super::segment::Segment;
use super::{ApiCall, BASE_PATH, Finding};
use crate::api_changelog::{ApiDate, Change, ChangeKind, ChangeSubject, Changelog, GatewayAction, Route};

/// Response header with the date of deprecation (RFC 9745).
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// Characters that would end the URL of a link (RFC 8288), or a header.
const LINK: AsciiSet = CONTROLS.add(b' ').add(b'<').add(b'>').add(b'"');

/// A deprecated call.
#[derive(Debug, Clone)]
pub(crate) struct DeprecatedCall {
    /// The change that deprecates it; its id is counted.
    pub change: &'static Change,
    /// Date of deprecation.
    pub since: ApiDate,
    successor: Successor,
}

/// An exact replacement of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// HTTP method.
    pub method: Method,
    /// Raw path, from the root. The query is kept.
    pub path: String,
    /// True if the body is dropped, with the headers that describe it: the old call's body is empty or `{}`.
    pub drops_body: bool,
}

#[derive(Debug, Clone)]
enum Successor {
    /// This call.
    Exact(Replacement),
    /// This route, once the organization is known.
    InOrganization(&'static Route),
    /// A call with another body: named in the response, and not sent.
    Different(String),
    /// None that could be named.
    None,
}

/// A deprecated endpoint.
#[derive(Debug)]
struct DeprecatedEndpoint {
    change: &'static Change,
    since: ApiDate,
    old: &'static Route,
    new: SuccessorRoute,
}

#[derive(Debug)]
enum SuccessorRoute {
    Exact(&'static Route),
    Named(&'static Route),
    None,
}

static ENDPOINTS: LazyLock<Vec<DeprecatedEndpoint>> = LazyLock::new(|| {
    let mut entries = Vec::new();
    for row in Changelog::get().rows() {
        let deprecated =
            |change: &&Change| change.kind == ChangeKind::Deprecated && change.subject == ChangeSubject::Endpoint;
        let acts = |change: &&Change| matches!(change.gateway.action, GatewayAction::Warn | GatewayAction::Rewrite);
        for change in row.changes.iter().filter(deprecated).filter(acts) {
            let exact = change.changelog.replacement.as_ref().and_then(|new| new.route());
            let documented = change.documentation.successor.as_ref().and_then(|new| new.route());
            for old in change.endpoints().filter_map(|endpoint| endpoint.route()) {
                let new = exact
                    .map(SuccessorRoute::Exact)
                    .or(documented.map(SuccessorRoute::Named))
                    .unwrap_or(SuccessorRoute::None);
                entries.push(DeprecatedEndpoint { change, since: row.date, old, new });
            }
        }
    }
    // If two match, the one with literals first is meant: `actions/delete/O/versions` deletes.
    entries.sort_by_key(|entry| entry.old.path.parameter_positions());
    entries
});

/// Finds the deprecation of a call. `path` is below the base path.
pub(super) fn find(
    call: ApiCall<'_>,
    path: &str,
    registry_name: Option<&Segment>,
    namespace: Option<&Segment>,
) -> Option<DeprecatedCall> {
    let entry = ENDPOINTS.iter().find(|entry| entry.old.matches(call.method, path, call.query))?;
    let names = entry.old.path.names(path)?;
    let segment = |name: &str| names.iter().find(|(parameter, _)| *parameter == name).map(|(_, segment)| *segment);
    let fill = |name: &str| match name {
        "registry_name" => registry_name.map(Segment::as_str),
        "namespace" => namespace.map(Segment::as_str).or_else(|| segment("organization_name")),
        _ => segment(name),
    };
    let successor = match entry.new {
        SuccessorRoute::Exact(new) => match build_replacement(new, call.method, fill) {
            Some(replacement) => Successor::Exact(replacement),
            None => Successor::InOrganization(new),
        },
        SuccessorRoute::Named(new) => {
            new.path.fill(fill).map_or(Successor::None, |path| Successor::Different(path_from_root(&path)))
        }
        SuccessorRoute::None => Successor::None,
    };
    Some(DeprecatedCall { change: entry.change, since: entry.since, successor })
}

impl DeprecatedCall {
    /// Returns the exact replacement, if there is one. `organization` is for calls that name none: see
    /// [`DeprecatedCall::needs_organization`].
    pub(crate) fn replacement(&self, organization: Option<&str>) -> Option<Replacement> {
        match &self.successor {
            Successor::Exact(replacement) => Some(replacement.clone()),
            Successor::InOrganization(new) => {
                let organization = Segment::encode(organization?)?;
                let fill = |name: &str| (name == "organization_name").then_some(organization.as_str());
                build_replacement(new, &Method::POST, fill)
            }
            Successor::Different(_) | Successor::None => None,
        }
    }

    /// Returns true if the replacement depends on the organization: see [`super::organization`].
    pub(crate) fn needs_organization(&self) -> bool {
        matches!(self.successor, Successor::InOrganization(_))
    }

    /// Builds the warning for a call that is sent as it is because its organization is unknown.
    pub(crate) fn unresolved_warning(&self, hint: &OrganizationHint) -> Finding {
        let text = match hint {
            OrganizationHint::InvalidName => {
                "the organization's name in the body cannot be a segment of a path; the call is sent as it is"
            }
            _ => "the call names no organization, nor does its OAuth token or the configuration; it is sent as it is",
        };
        Finding::warning(self.change, text.to_owned())
    }

    /// Builds the response headers: `Deprecation` with the date (RFC 9745), and a `Link` to the successor, if known. No
    /// `Sunset`: the history names no date of removal.
    pub(crate) fn headers(&self, organization: Option<&str>) -> Vec<(HeaderName, HeaderValue)> {
        let path = match &self.successor {
            Successor::Different(path) => Some(path.clone()),
            _ => self.replacement(organization).map(|replacement| replacement.path),
        };
        let link = path.map(|path| format!("<{}>; rel=\"successor-version\"", utf8_percent_encode(&path, &LINK)));
        let since = format!("@{}", self.since.unix_seconds());
        let headers = [(DEPRECATION, Some(since)), (header::LINK, link)];
        headers.into_iter().filter_map(|(name, value)| Some((name, value?.try_into().ok()?))).collect()
    }
}

fn build_replacement<'a>(new: &Route, old: &Method, fill: impl Fn(&str) -> Option<&'a str>) -> Option<Replacement> {
    let path = path_from_root(&new.path.fill(fill)?);
    let method = new.method()?.clone();
    let drops_body = method == Method::DELETE && *old != Method::DELETE;
    Some(Replacement { method, path, drops_body })
}

fn path_from_root(path: &str) -> String {
    format!("{BASE_PATH}{path}")
}
