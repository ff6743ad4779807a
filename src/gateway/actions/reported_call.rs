//! A call in the form of the usage report: method, path template, organization and workspace.

use std::sync::LazyLock;

use percent_encoding::percent_decode_str;

use super::ApiCall;
use crate::api_changelog::{Change, Changelog, PathTemplate};

/// A call as the report names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReportedCall {
    /// Method and path template below the base path, such as `GET /runs/:run_id/policy-checks`.
    pub call: String,
    /// Organization, if the path or a lookup names it.
    pub organization: Option<String>,
    /// Id or name of the workspace, if the path has it.
    pub workspace: Option<String>,
}

/// Distinct templates of the history; of two that match a path, the one with literals first comes first.
static TEMPLATES: LazyLock<Vec<&'static PathTemplate>> = LazyLock::new(|| {
    let endpoints = Changelog::get().changes().flat_map(Change::endpoints);
    let mut all: Vec<&PathTemplate> = endpoints.filter_map(|endpoint| Some(&endpoint.route()?.path)).collect();
    all.sort_by_key(|template| (template.parameter_positions(), template.to_string()));
    all.dedup();
    all
});

/// Maximum length of a name, in characters.
const MAX_NAME_LENGTH: usize = 100;

impl ReportedCall {
    /// Reduces a call to this form. A path without a template in the history is omitted.
    pub(crate) fn from_call(call: ApiCall<'_>) -> Self {
        let path = call.path_below_base().unwrap_or_default();
        let template = TEMPLATES.iter().find(|template| template.matches(path));
        let name = |name: &str, collection: &str| {
            let segment = template?.segment(path, name, collection)?;
            let name = percent_decode_str(segment).decode_utf8_lossy();
            Some(name.chars().take(MAX_NAME_LENGTH).collect())
        };
        let template_text = template.map_or_else(|| "(another path)".to_owned(), ToString::to_string);
        Self {
            call: format!("{} {template_text}", call.method),
            organization: name("organization_name", "organizations"),
            workspace: name("workspace_id", "workspaces"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn calls_are_reported_by_template_organization_and_workspace() {
        let check = |method: Method, path: &str, expected: (&str, Option<&str>, Option<&str>)| {
            let path = format!("/api/v2{path}");
            let called = ReportedCall::from_call(ApiCall { method: &method, path: &path, query: "" });
            let found = (called.call.as_str(), called.organization.as_deref(), called.workspace.as_deref());
            assert_eq!(found, expected, "{path}");
        };
        check(Method::GET, "/policy-checks/p-1/output", ("GET /policy-checks/:id/output", None, None));
        check(
            Method::DELETE,
            "/organizations/my%20org/workspaces/w/actions/safe-delete",
            (
                "DELETE /organizations/:organization_name/workspaces/:name/actions/safe-delete",
                Some("my org"),
                Some("w"),
            ),
        );
        check(Method::GET, "/workspaces/ws-1/runs", ("GET /workspaces/:workspace_id/runs", None, Some("ws-1")));
        check(
            Method::PATCH,
            "/admin/organizations/o/module-consumers",
            ("PATCH /admin/organizations/:name/module-consumers", Some("o"), None),
        );
        check(
            Method::POST,
            "/registry-modules/o/n/p/versions",
            ("POST /registry-modules/:organization_name/:name/:provider/versions", Some("o"), None),
        );
        check(
            Method::POST,
            "/organizations/o/registry-modules",
            ("POST /organizations/:organization_name/registry-modules", Some("o"), None),
        );
        check(Method::GET, "/nowhere", ("GET (another path)", None, None));
        let long = "x".repeat(1000);
        let called = ReportedCall::from_call(ApiCall {
            method: &Method::GET,
            path: &format!("/api/v2/workspaces/{long}/runs"),
            query: "",
        });
        assert_eq!(called.workspace.map(|name| name.len()), Some(MAX_NAME_LENGTH));
    }
}
