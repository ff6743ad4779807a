//! Policies, far simpler than real ones: lists of paths, each with an optional `*` at its end, on which everything is
//! allowed, or with `read ` before it only reads and lists. A name without a list allows everything, so that tests about
//! other things need none.

use std::collections::BTreeMap;

use super::route::Verb;

/// Lists of paths, by policy name.
pub(crate) type Policies = BTreeMap<String, Vec<String>>;

/// Returns true if a token with these policies may do this on a path.
pub(super) fn allow(policies: &Policies, names: &[String], path: &str, verb: Verb) -> bool {
    // Allowed anyway, by the real server's `default` policy.
    let always_allowed =
        ["auth/token/lookup-self", "auth/token/renew-self", "auth/token/revoke-self", "sys/capabilities-self"];
    let folders = ["sys/wrapping/", "sys/internal/ui/mounts", "cubbyhole/"];
    if always_allowed.contains(&path) || folders.iter().any(|folder| path.starts_with(folder)) {
        return true;
    }
    // The real server judges a list by the folder, which ends with a slash.
    let judged = if verb == Verb::List { format!("{path}/") } else { path.to_owned() };
    names.iter().any(|name| match policies.get(name) {
        // Most tokens have `default`: it must not allow what the others deny.
        None => name != "default" || names.len() == 1,
        Some(paths) => paths.iter().any(|allowed| {
            let (allowed, only_reads) = split_entry(allowed);
            let fits = match allowed.strip_suffix('*') {
                Some(start) => judged.starts_with(start),
                None => judged == allowed || path == allowed,
            };
            fits && (!only_reads || matches!(verb, Verb::Read | Verb::List))
        }),
    })
}

/// Splits an entry into its path, and true if it allows only reads and lists.
fn split_entry(entry: &str) -> (&str, bool) {
    entry.strip_prefix("read ").map_or((entry, false), |path| (path, true))
}

/// Returns the capabilities on a path, as `sys/capabilities-self` lists them.
pub(super) fn capabilities(policies: &Policies, names: &[String], path: &str) -> &'static [&'static str] {
    if names.iter().any(|name| name == "root") {
        &["root"]
    } else if allow(policies, names, path, Verb::Write) {
        &["create", "delete", "list", "patch", "read", "update"]
    } else if allow(policies, names, path, Verb::Read) {
        &["list", "read"]
    } else {
        &["deny"]
    }
}

/// Returns true if a token with these policies may use anything below a mount, such as `secret`.
pub(super) fn reach(policies: &Policies, names: &[String], mount: &str) -> bool {
    let mount = format!("{mount}/");
    names.iter().any(|name| match policies.get(name) {
        None => name != "default" || names.len() == 1,
        Some(paths) => paths.iter().any(|allowed| {
            let (allowed, _) = split_entry(allowed);
            let start = allowed.trim_end_matches('*');
            start.starts_with(&mount) || (start.len() < allowed.len() && mount.starts_with(start))
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Policies, allow, capabilities, reach};
    use crate::secrets::route::Verb;

    #[test]
    fn a_mount_is_reached_by_any_path_below_it() {
        let paths = ["secret/data/web/*", "kv/one", "te*"].map(str::to_owned).to_vec();
        let policies = Policies::from([("web".to_owned(), paths)]);
        let check = |names: &[&str], mount: &str| {
            reach(&policies, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), mount)
        };
        assert!(check(&["web", "default"], "secret") && check(&["web"], "kv") && check(&["web"], "terraform"));
        assert!(!check(&["web", "default"], "database") && !check(&["web"], "k"));
        assert!(check(&["dev", "default"], "database") && check(&["default"], "kv"));
    }

    #[test]
    fn a_policy_with_paths_allows_those_and_one_without_everything() {
        let paths = ["secret/data/web/*", "kv/one", "read pki/*"].map(str::to_owned).to_vec();
        let policies = Policies::from([("web".to_owned(), paths)]);
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let may = |names: &[&str], path: &str| allow(&policies, &own(names), path, Verb::Write);
        assert!(allow(&policies, &own(&["web"]), "pki/x", Verb::List) && !may(&["web"], "pki/x"));
        assert!(
            allow(&policies, &own(&["web"]), "pki", Verb::List)
                && allow(&policies, &own(&["web"]), "kv/one", Verb::List)
        );
        assert!(
            !allow(&policies, &own(&["web"]), "pki", Verb::Read) && !allow(&policies, &own(&["web"]), "kv", Verb::List)
        );
        for (path, expected) in
            [("pki/x", "list read"), ("other", "deny"), ("kv/one", "create delete list patch read update")]
        {
            assert_eq!(capabilities(&policies, &own(&["web"]), path).join(" "), expected);
        }
        assert!(may(&["web"], "secret/data/web/a") && may(&["web"], "kv/one") && may(&["web"], "sys/wrapping/wrap"));
        assert!(!may(&["web"], "secret/data/other") && !may(&["web", "default"], "kv/one/more"));
        assert!(may(&["default"], "kv/x") && may(&["dev", "default"], "kv/x") && may(&["root"], "sys/mounts"));
    }
}
