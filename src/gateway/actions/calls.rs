//! What is said of a call by its method, path and query.

use std::sync::LazyLock;

use http::Method;

use super::{ApiCall, Finding};
use crate::gateway::api_changelog::{Change, ChangeSubject, Changelog, Edition, GatewayAction, Route};
use crate::gateway::availability::{Availability, Product, ServerInfo};

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
    FeatureAvailable,
    /// Safe delete is a `POST`.
    SafeDelete,
    /// The list is not whole without this filter.
    TimeframeFilter,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut rules = Vec::new();
    for change in Changelog::get().changes() {
        let check = || match change.id.as_str() {
            "2022-12-22/1" => Some(Check::SafeDelete),
            "2024-10-11/1" => Some(Check::TimeframeFilter),
            _ => requires_feature(change).then_some(Check::FeatureAvailable),
        };
        for route in change.endpoints().filter_map(|endpoint| endpoint.route()) {
            rules.extend(check().map(|check| Rule { change, route, check }));
        }
    }
    rules
});

/// Whether a change is marked for some servers alone, and a call to its endpoints shows that it is needed.
fn requires_feature(change: &Change) -> bool {
    change.gateway.action == GatewayAction::FeatureCheck
        && is_restricted(change)
        && matches!(change.subject, ChangeSubject::Endpoint | ChangeSubject::Relationship)
}

/// Whether a row is marked for some servers alone.
pub(super) fn is_restricted(change: &Change) -> bool {
    change.changelog.edition != Edition::All || change.changelog.release.is_some()
}

/// What is said of a call. `path` is below the base path.
pub(super) fn findings(call: ApiCall<'_>, path: &str, server: &ServerInfo) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule.evaluate(call, path, server)).collect();
    // A change may have several endpoints that take one call.
    findings.dedup_by_key(|finding| &finding.change.id);
    findings
}

impl Rule {
    fn evaluate(&self, call: ApiCall<'_>, path: &str, server: &ServerInfo) -> Option<Finding> {
        match self.check {
            Check::FeatureAvailable => {
                // Of most calls, and while the server is not known, nothing is said: that is found out without the path.
                if !is_unavailable(self.change, server) || !self.route.matches(call.method, path, call.query) {
                    return None;
                }
                check_available(self.change, server, None)
            }
            Check::SafeDelete => (call.method == Method::DELETE && self.route.path.matches(path)).then(|| {
                Finding::warning(self.change, "safe delete is a POST; this DELETE is sent as it is".to_owned())
            }),
            Check::TimeframeFilter => {
                let unfiltered = call.method == Method::GET
                    && path.starts_with("/organizations/")
                    && self.route.path.matches(path)
                    && !self.route.matches(call.method, path, call.query);
                unfiltered.then(|| {
                    let text = "without filter[timeframe] the list of an organization's runs holds the last year only";
                    Finding::warning(self.change, text.to_owned())
                })
            }
        }
    }
}

/// Whether the server is known to be without a change.
fn is_unavailable(change: &Change, server: &ServerInfo) -> bool {
    Availability::for_change(change, server) == Availability::Unavailable
}

/// What is said of a call that needs a change; nothing, where the server may have it. `pointer` says what of the body
/// needs it.
pub(super) fn check_available(
    change: &'static Change,
    server: &ServerInfo,
    pointer: Option<String>,
) -> Option<Finding> {
    if !is_unavailable(change, server) {
        return None;
    }
    let feature = format!("{} ({})", change.names.join(", "), change.resource);
    let text = match (change.changelog.edition, change.changelog.release, server.release) {
        (Edition::Hosted, ..) => format!("{feature} is of the hosted product; this server is self-managed"),
        (_, Some(since), Some(release)) if server.product == Some(Product::SelfManaged) => {
            format!("{feature} came with {since}; this server is {release}")
        }
        _ => format!("{feature} is of the self-managed product; this server is hosted"),
    };
    Some(Finding { change, text, pointer, blocking: Availability::is_blocked(change, server) })
}
