//! What is said of a call by its method, path and query.

use std::sync::LazyLock;

use http::Method;

use super::{Call, Finding};
use crate::gateway::api_changelog::{Action, Change, Changelog, Edition, Route, Subject};
use crate::gateway::availability::{Availability, Product, Server};

/// A change that says something of calls.
#[derive(Debug)]
struct Rule {
    change: &'static Change,
    route: &'static Route,
    check: Check,
}

#[derive(Debug, PartialEq, Eq)]
enum Check {
    /// The call needs the change.
    Needs,
    /// Safe delete is a `POST`.
    SafeDelete,
    /// The list is not whole without this filter.
    Filtered,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut rules = Vec::new();
    for change in Changelog::get().changes() {
        let check = || match change.id.as_str() {
            "2022-12-22/1" => Some(Check::SafeDelete),
            "2024-10-11/1" => Some(Check::Filtered),
            _ => is_needed(change).then_some(Check::Needs),
        };
        for route in change.endpoints().filter_map(|endpoint| endpoint.route()) {
            rules.extend(check().map(|check| Rule { change, route, check }));
        }
    }
    rules
});

/// Whether a change is marked for some servers alone, and a call to its endpoints shows that it is needed.
fn is_needed(change: &Change) -> bool {
    change.gateway.does == Action::FeatureCheck
        && is_marked(change)
        && matches!(change.subject, Subject::Endpoint | Subject::Relationship)
}

/// Whether a row is marked for some servers alone.
pub(super) fn is_marked(change: &Change) -> bool {
    change.changelog.edition != Edition::All || change.changelog.release.is_some()
}

/// What is said of a call. `path` is below the base path.
pub(super) fn findings(call: Call<'_>, path: &str, server: &Server) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule.judge(call, path, server)).collect();
    // A change may have several endpoints that take one call.
    findings.dedup_by_key(|finding| &finding.change.id);
    findings
}

impl Rule {
    fn judge(&self, call: Call<'_>, path: &str, server: &Server) -> Option<Finding> {
        match self.check {
            Check::Needs => {
                // Of most calls, and while the server is not known, nothing is said: that is found out without the path.
                if !lacks(self.change, server) || !self.route.takes(call.method, path, call.query) {
                    return None;
                }
                needs(self.change, server, None)
            }
            Check::SafeDelete => (call.method == Method::DELETE && self.route.path.fits(path)).then(|| {
                Finding::warning(self.change, "safe delete is a POST; this DELETE is sent as it is".to_owned())
            }),
            Check::Filtered => {
                let whole = call.method == Method::GET
                    && path.starts_with("/organizations/")
                    && self.route.path.fits(path)
                    && !self.route.takes(call.method, path, call.query);
                whole.then(|| {
                    let text = "without filter[timeframe] the list of an organization's runs holds the last year only";
                    Finding::warning(self.change, text.to_owned())
                })
            }
        }
    }
}

/// Whether the server is known to be without a change.
fn lacks(change: &Change, server: &Server) -> bool {
    Availability::of(change, server) == Availability::Unavailable
}

/// What is said of a call that needs a change; nothing, where the server may have it. `pointer` says what of the body
/// needs it.
pub(super) fn needs(change: &'static Change, server: &Server, pointer: Option<String>) -> Option<Finding> {
    if !lacks(change, server) {
        return None;
    }
    let what = format!("{} ({})", change.names.join(", "), change.resource);
    let text = match (change.changelog.edition, change.changelog.release, server.release) {
        (Edition::Hosted, ..) => format!("{what} is of the hosted product; this server is self-managed"),
        (_, Some(since), Some(release)) if server.product == Some(Product::SelfManaged) => {
            format!("{what} came with {since}; this server is {release}")
        }
        _ => format!("{what} is of the self-managed product; this server is hosted"),
    };
    Some(Finding { change, text, pointer, refusable: Availability::refuses(change, server) })
}
