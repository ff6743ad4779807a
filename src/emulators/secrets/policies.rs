//! What tokens may do: far less than real policies. A policy is a list of paths, each with a `*` at its end or not, below
//! which everything is allowed. A name that no list was given for allows everything, so tests that are not about policies
//! need none.

use std::collections::BTreeMap;

/// Lists of paths, by the policy's name.
pub type Policies = BTreeMap<String, Vec<String>>;

/// Whether a token with policies of these names may use a path.
pub(super) fn allow(policies: &Policies, names: &[String], path: &str) -> bool {
    // What the real server's `default` policy allows is allowed anyway.
    let own = ["auth/token/lookup-self", "auth/token/renew-self", "auth/token/revoke-self", "sys/capabilities-self"];
    if own.contains(&path) || path.starts_with("sys/wrapping/") || path.starts_with("sys/internal/ui/mounts") {
        return true;
    }
    names.iter().any(|name| match policies.get(name) {
        // It is in most tokens: it must not open what the others close.
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
