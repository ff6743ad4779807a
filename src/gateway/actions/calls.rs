//! Rules about method, path and query of a call.

use std::sync::LazyLock;

use http::Method;
use keyward_telemetry::error_code::ErrorCode;

use super::{ApiCall, Finding};
use crate::api_changelog::{Change, ChangeSubject, Changelog, Edition, GatewayAction, Route};
use crate::availability::{Availability, Product, ServerInfo};

/// A change with a rule about calls.
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
    /// The list is incomplete without this filter.
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

/// Returns true if a change is marked for some servers only, and a call to its endpoints needs it.
fn requires_feature(change: &Change) -> bool {
    change.gateway.action == GatewayAction::FeatureCheck
        && is_restricted(change)
        && matches!(change.subject, ChangeSubject::Endpoint | ChangeSubject::Relationship)
}

/// Returns true if a row is marked for some servers only.
pub(super) fn is_restricted(change: &Change) -> bool {
    change.changelog.edition != Edition::All || change.changelog.release.is_some()
}

/// Evaluates the rules about a call. `path` is below the base path.
pub(super) fn findings(call: ApiCall<'_>, path: &str, server: &ServerInfo) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule.evaluate(call, path, server)).collect();
    // Several endpoints of a change may match one call.
    findings.dedup_by_key(|finding| &finding.change.id);
    findings
}

impl Rule {
    fn evaluate(&self, call: ApiCall<'_>, path: &str, server: &ServerInfo) -> Option<Finding> {
        match self.check {
            Check::FeatureAvailable => {
                // Cheap check first: most calls, and all while the server is unknown, end here without matching the
                // path.
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

/// Returns true if the server is known to lack a change.
fn is_unavailable(change: &Change, server: &ServerInfo) -> bool {
    Availability::for_change(change, server) == Availability::Unavailable
}

/// Returns a finding if the server lacks the change that a call needs. `pointer` names the part of the body that needs
/// it.
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
        (Edition::Hosted, ..) => format!("{feature} exists in HCP Terraform only; this server is Terraform Enterprise"),
        (_, Some(since), Some(release)) if server.product == Some(Product::SelfManaged) => {
            format!("{feature} requires release {since}; this server is {release}")
        }
        _ => format!("{feature} exists in Terraform Enterprise only; this server is HCP Terraform"),
    };
    let code = Some(ErrorCode::FeatureMissing);
    Some(Finding { change, text, pointer, code, blocking: Availability::is_blocked(change, server) })
}
