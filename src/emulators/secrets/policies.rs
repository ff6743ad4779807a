//! Policies, far simpler than real ones: lists of paths, each with an optional `*` at its end, on which everything is
//! allowed. A name without a list allows everything, so that tests about other things need none.

use std::collections::BTreeMap;

/// Lists of paths, by policy name.
pub(crate) type Policies = BTreeMap<String, Vec<String>>;

/// Returns true if a token with these policies may use a path.
pub(super) fn allow(policies: &Policies, names: &[String], path: &str) -> bool {
    // Allowed anyway, by the real server's `default` policy.
    let always_allowed =
        ["auth/token/lookup-self", "auth/token/renew-self", "auth/token/revoke-self", "sys/capabilities-self"];
    if always_allowed.contains(&path) || path.starts_with("sys/wrapping/") || path.starts_with("sys/internal/ui/mounts")
    {
        return true;
    }
    names.iter().any(|name| match policies.get(name) {
        // Most tokens have `default`: it must not allow what the others deny.
        None => name != "default" || names.len() == 1,
        Some(paths) => paths.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == allowed,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Policies, allow};

    #[test]
    fn a_policy_with_paths_allows_those_and_one_without_everything() {
        let policies = Policies::from([("web".to_owned(), vec!["secret/data/web/*".to_owned(), "kv/one".to_owned()])]);
        let may = |names: &[&str], path: &str| {
            allow(&policies, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), path)
        };
        assert!(may(&["web"], "secret/data/web/a") && may(&["web"], "kv/one") && may(&["web"], "sys/wrapping/wrap"));
        assert!(!may(&["web"], "secret/data/other") && !may(&["web", "default"], "kv/one/more"));
        assert!(may(&["default"], "kv/x") && may(&["dev", "default"], "kv/x") && may(&["root"], "sys/mounts"));
    }
}
