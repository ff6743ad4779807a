//! Decides which paths the gateway serves, and counts paths of the platform's API by class.

use percent_encoding::percent_decode_str;

use crate::path_rules::check_path;

/// Part of the gateway that a path belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestTarget<'a> {
    /// Service discovery.
    Discovery,
    /// The gateway's own endpoints, below `/v1/platform/`.
    AdminApi(&'a str),
    /// The platform's API.
    Api,
    /// Download of a state from the platform.
    State,
    /// Not served.
    NotFound,
    /// Ambiguous spelling, with the reason.
    Ambiguous(&'static str),
}

/// Prefixes of the platform's paths that are served.
const API_PREFIXES: [&str; 2] = ["/api/v2/", "/api/registry/"];

/// The one other path of the platform that is served; nothing below it is.
const IP_RANGES: &str = "/api/meta/ip-ranges";

/// Prefix of state downloads: `/api/state-versions/ID/hosted_state`, `.../hosted_json_state`, and sanitized forms.
const STATE_VERSIONS: &str = "/api/state-versions/";

/// Classifies the path of a request, given without its query.
pub(super) fn classify_path(path: &str) -> RequestTarget<'_> {
    if let Err(why) = check_path(path) {
        return RequestTarget::Ambiguous(why);
    }
    if path == "/.well-known/terraform.json" {
        return RequestTarget::Discovery;
    }
    if let Some(own) = path.strip_prefix("/v1/platform/") {
        return RequestTarget::AdminApi(own);
    }
    if path.strip_prefix(STATE_VERSIONS).is_some_and(is_state_file) {
        return RequestTarget::State;
    }
    let api = API_PREFIXES.iter().any(|start| path.starts_with(start));
    if api || path == IP_RANGES { RequestTarget::Api } else { RequestTarget::NotFound }
}

/// Returns true for the id of a state version followed by the name of one of its files.
fn is_state_file(rest: &str) -> bool {
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    rest.split_once('/').is_some_and(|(id, file)| plain(id) && plain(file))
}

/// Returns true if the response is a user's file, not an API document: none of its strings is a link of the platform.
pub(super) fn is_user_file(path: &str) -> bool {
    path.strip_prefix(STATE_VERSIONS).is_some_and(is_state_file)
        || path.rsplit('/').next().is_some_and(|name| name.starts_with("json-output"))
}

/// Percent-decodes a segment, for comparisons.
pub(super) fn percent_decode(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// Names of the classes, by index.
pub(super) const PATH_CLASSES: [&str; 6] = ["runs", "state", "workspaces", "registry", "organizations", "other"];

/// Returns the index of a path's class.
pub(super) fn path_class(path: &str) -> usize {
    if path.starts_with("/api/registry/") {
        return REGISTRY;
    }
    let Some(below) = path.strip_prefix("/api/v2/") else { return OTHER };
    let mut segments = below.split('/');
    match (segments.next(), segments.nth(1)) {
        (Some("runs" | "plans" | "applies"), _) | (Some("workspaces" | "organizations"), Some("runs")) => RUNS,
        (Some("state-versions" | "state-version-outputs"), _) => STATE,
        (Some("workspaces"), Some("state-versions" | "current-state-version" | "current-state-version-outputs")) => {
            STATE
        }
        (Some("organizations"), Some("registry-modules" | "registry-providers"))
        | (Some("registry-modules" | "registry-providers"), _) => REGISTRY,
        (Some("organizations"), Some("workspaces")) | (Some("workspaces"), _) => WORKSPACES,
        (Some("organizations"), _) => ORGANIZATIONS,
        _ => OTHER,
    }
}

const RUNS: usize = 0;
const STATE: usize = 1;
const WORKSPACES: usize = 2;
const REGISTRY: usize = 3;
const ORGANIZATIONS: usize = 4;
const OTHER: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_paths_are_served() {
        let check = |path: &str, expected: RequestTarget<'_>| assert_eq!(classify_path(path), expected, "{path}");
        check("/api/v2/ping", RequestTarget::Api);
        check("/api/v2/organizations/a%2Fb/runs", RequestTarget::Api);
        check("/api/v2//registry-modules/x/", RequestTarget::Api);
        check("/api/registry/v1/modules/a/b/c/versions", RequestTarget::Api);
        check("/api/registry/private/v2/modules", RequestTarget::Api);
        check("/api/meta/ip-ranges", RequestTarget::Api);
        check("/.well-known/terraform.json", RequestTarget::Discovery);
        check("/v1/platform/changes", RequestTarget::AdminApi("changes"));
        check("/api/state-versions/sv-Ab1/hosted_state", RequestTarget::State);
        check("/api/state-versions/sv-Ab1/hosted_json_state", RequestTarget::State);
        for path in [
            "/",
            "*",
            "/api",
            "/api/v2",
            "/api/v20/ping",
            "/api/v2x/ping",
            "/API/v2/ping",
            "/api/V2/ping",
            "//api/v2/ping",
            "/api//v2/ping",
            "/api/v3/ping",
            "/api/meta/ip-ranges/x",
            "/api/meta/ip-ranges.json",
            "/api/meta",
            "/api/state-versions",
            "/api/state-versions/sv-1",
            "/api/state-versions//hosted_state",
            "/api/state-versions/sv-1/",
            "/api/state-versions/sv-1/a/b",
            "/api/state-versions/sv%2d1/hosted_state",
            "/admin",
            "/app/x",
            "/api%2Fv2/ping",
            "/%61pi/v2/ping",
            "/api/v2%2Fping",
            "/.well-known/terraform.json/",
            "/v1/platform",
            "/_archivist/v1/object/secret",
        ] {
            check(path, RequestTarget::NotFound);
        }
    }

    #[test]
    fn states_and_json_outputs_are_files_of_users() {
        for (path, expected) in [
            ("/api/state-versions/sv-1/hosted_state", true),
            ("/api/state-versions/sv-1", false),
            ("/api/v2/plans/plan-1/json-output", true),
            ("/api/v2/plans/plan-1/json-output-redacted", true),
            ("/api/v2/plans/json-output/x", false),
            ("/api/v2/runs/run-1", false),
        ] {
            assert_eq!(is_user_file(path), expected, "{path}");
        }
        assert_eq!(percent_decode("a%2Fb%20c"), "a/b c");
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "/api/v2/../admin",
            "/api/v2/./ping",
            "/api/v2/..",
            "/api/v2/%2e%2e/admin",
            "/api/v2/.%2E/admin",
            "/api/v2/%252e%252e/admin",
            "/api/v2/%25252e./admin",
            "/api/v2/..;/admin",
            "/api/v2/..%3bx/admin",
            "/api/v2/a%2f..%2fb",
            "/api/v2/a%5c..%5cb",
            "/api/v2/a\\b",
            "/api/v2/%00",
            "/api/v2/a%0d%0aHost:x",
            "/api/v2/%",
            "/api/v2/%4",
            "/api/v2/%zz",
            "/api/v2/\u{e9}",
        ] {
            assert!(matches!(classify_path(path), RequestTarget::Ambiguous(_)), "{path}: {:?}", classify_path(path));
        }
        assert_eq!(classify_path("/api/v2/a..b/...c/.d/e%2e"), RequestTarget::Api, "dots in a name do not climb");
    }

    #[test]
    fn paths_have_their_class() {
        let check = |path: &str, expected: &str| assert_eq!(PATH_CLASSES[path_class(path)], expected, "{path}");
        check("/api/v2/runs/run-1/actions/apply", "runs");
        check("/api/v2/workspaces/ws-1/runs", "runs");
        check("/api/v2/organizations/acme/runs", "runs");
        check("/api/v2/state-versions/sv-1", "state");
        check("/api/v2/workspaces/ws-1/current-state-version", "state");
        check("/api/v2/workspaces/ws-1/vars", "workspaces");
        check("/api/v2/organizations/acme/workspaces/web", "workspaces");
        check("/api/registry/v1/modules/acme/vpc/aws/versions", "registry");
        check("/api/v2/organizations/acme/registry-modules", "registry");
        check("/api/v2/organizations/acme/teams", "organizations");
        check("/api/v2/account/details", "other");
        check("/v1/object/abc", "other");
    }
}
