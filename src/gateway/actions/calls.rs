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
    /// A query parameter with one of these names needs the change.
    QueryParameter(Vec<String>),
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut rules = Vec::new();
    for change in Changelog::get().changes() {
        let check = || match change.id.as_str() {
            "2022-12-22/1" => Some(Check::SafeDelete),
            "2024-10-11/1" => Some(Check::TimeframeFilter),
            _ => None,
        };
        for route in change.endpoints().filter_map(|endpoint| endpoint.route()) {
            let check = check().or_else(|| feature_check(change, route));
            rules.extend(check.map(|check| Rule { change, route, check }));
        }
    }
    rules
});

/// Returns the check of a call that needs a change which some servers lack.
fn feature_check(change: &Change, route: &Route) -> Option<Check> {
    if change.gateway.action != GatewayAction::FeatureCheck {
        return None;
    }
    match change.subject {
        ChangeSubject::Endpoint | ChangeSubject::Relationship => Some(Check::FeatureAvailable),
        ChangeSubject::QueryParameter if route.has_query() => Some(Check::FeatureAvailable),
        ChangeSubject::QueryParameter => Some(Check::QueryParameter(change.spellings().collect())),
        _ => None,
    }
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
        let is_unavailable = is_unavailable(self.change, server);
        match &self.check {
            Check::FeatureAvailable | Check::QueryParameter(_) => {
                // Cheap check first: most calls, and all while the server is unknown, end here without matching the
                // path.
                if !is_unavailable || !self.route.matches(call.method, path, call.query) {
                    return None;
                }
                let names = match &self.check {
                    Check::QueryParameter(names) => Some(find_parameter(names, call.query)?),
                    _ => None,
                };
                check_available(self.change, server, names, None)
            }
            // The server's release is older than what the row says.
            _ if is_unavailable => None,
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

/// Returns the name that the query has as a parameter.
fn find_parameter<'a>(names: &'a [String], query: &str) -> Option<&'a str> {
    let has = |name: &&String| url::form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == name.as_str());
    names.iter().find(has).map(String::as_str)
}

/// Returns a finding if the server lacks the change that a call needs. `name` is the part of the change that the call
/// uses, if one is known. `pointer` names the part of the body that needs it.
pub(super) fn check_available(
    change: &'static Change,
    server: &ServerInfo,
    name: Option<&str>,
    pointer: Option<String>,
) -> Option<Finding> {
    if !is_unavailable(change, server) {
        return None;
    }
    let names = name.map_or_else(|| change.names.join(", "), str::to_owned);
    let feature = format!("{names} ({})", change.resource);
    let is_self_managed = server.product == Some(Product::SelfManaged);
    let text = match (change.changelog.edition, change.changelog.release, server.release) {
        (_, Some(since), Some(release)) if is_self_managed => {
            format!("{feature} requires release {since}; this server is {release}")
        }
        (Edition::Hosted, _, Some(release)) => {
            format!("{feature} came to HCP Terraform on {}; this server is {release}", change.date)
        }
        (_, _, Some(release)) if is_self_managed => {
            format!("{feature} is in the API since {}; this server is {release}", change.date)
        }
        _ => format!("{feature} exists in Terraform Enterprise only; this server is HCP Terraform"),
    };
    let code = Some(ErrorCode::FeatureMissing);
    Some(Finding { change, text, pointer, code, blocking: Availability::is_blocked(change, server) })
}
