//! Classes of paths of the platform's API, for metrics.

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
