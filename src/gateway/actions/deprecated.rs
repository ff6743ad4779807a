//! Deprecated calls, and the calls that replace them.

use std::sync::LazyLock;

use http::{HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::organization::OrganizationHint;
use super::segment::Segment;
use super::{ApiCall, BASE_PATH, Finding};
use crate::gateway::api_changelog::{ApiDate, Change, ChangeKind, ChangeSubject, Changelog, GatewayAction, Route};

/// When a resource became deprecated (RFC 9745).
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// What would end the address of a link (RFC 8288), or a header.
const LINK: AsciiSet = CONTROLS.add(b' ').add(b'<').add(b'>').add(b'"');

/// A deprecated call.
#[derive(Debug, Clone)]
pub struct DeprecatedCall {
    /// The change that says so. Its name is what is counted.
    pub change: &'static Change,
    /// Since when.
    pub since: ApiDate,
    successor: Successor,
}

/// The call that replaces one, exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// Its method.
    pub method: Method,
    /// Its raw path, from the root. The query stays as it is.
    pub path: String,
    /// Whether the body is left out, and what describes it: the old call's is empty or `{}`.
    pub drops_body: bool,
}

#[derive(Debug, Clone)]
enum Successor {
    /// By this call.
    Exact(Replacement),
    /// By this route, once the organization is known.
    InOrganization(&'static Route),
    /// By a call with another body, so it is named and not sent.
    Different(String),
    /// By nothing that could be named.
    None,
}

/// An endpoint that is deprecated.
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
            let named = change.documentation.successor.as_ref().and_then(|new| new.route());
            for old in change.endpoints().filter_map(|endpoint| endpoint.route()) {
                let new = exact
                    .map(SuccessorRoute::Exact)
                    .or(named.map(SuccessorRoute::Named))
                    .unwrap_or(SuccessorRoute::None);
                entries.push(DeprecatedEndpoint { change, since: row.date, old, new });
            }
        }
    }
    // Where two fit, the one with literals first is meant: `actions/delete/O/versions` deletes.
    entries.sort_by_key(|entry| entry.old.path.parameter_positions());
    entries
});

/// The deprecated call that this one is. `path` is below the base path.
pub(super) fn find(
    call: ApiCall<'_>,
    path: &str,
    registry_name: Option<&Segment>,
    namespace: Option<&Segment>,
) -> Option<DeprecatedCall> {
    let entry = ENDPOINTS.iter().find(|entry| entry.old.matches(call.method, path, call.query))?;
    let names = entry.old.path.names(path)?;
    let segment = |name: &str| names.iter().find(|(known, _)| *known == name).map(|(_, segment)| *segment);
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
    /// The call that replaces it exactly, if there is one. `organization` is for a call that names none: see
    /// [`DeprecatedCall::needs_organization`].
    pub fn replacement(&self, organization: Option<&str>) -> Option<Replacement> {
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

    /// Whether the organization must be known before there is a replacement: see [`super::organization`].
    pub fn needs_organization(&self) -> bool {
        matches!(self.successor, Successor::InOrganization(_))
    }

    /// The warning where the organization could not be known and the call is sent as it is.
    pub fn unresolved_warning(&self, hint: &OrganizationHint) -> Finding {
        let text = match hint {
            OrganizationHint::InvalidName => {
                "the organization's name in the body cannot be a segment of a path; the call is sent as it is"
            }
            _ => "the call names no organization, nor does its OAuth token or the configuration; it is sent as it is",
        };
        Finding::warning(self.change, text.to_owned())
    }

    /// The headers of an answer to it: `Deprecation` with the day (RFC 9745), and a `Link` to what succeeds it, where
    /// that is known. There is no `Sunset`: the history names no day of removal.
    pub fn headers(&self, organization: Option<&str>) -> Vec<(HeaderName, HeaderValue)> {
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
