//! Paths by which a caller logs in.
//!
//! An auth method has any path: in `auth/team/role/login`, `team/role` may be its mount, or `login` a role of `team`. The name of
//! the mount is all that tells them apart, and only the server has it.

use super::path::ApiPath;

/// Certainty that a path logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginPath {
    /// It logs in at an auth method with a usual path. The session's token is of no use there.
    Certain,
    /// It logs in if the mount's path is an unusual one, or reads the configuration of an auth method.
    Possible,
}

/// Reads a path, perhaps behind a namespace; `None` if no login is possible by it.
pub(super) fn classify(path: &ApiPath<'_>) -> Option<LoginPath> {
    let path = path.without_trailing_slash();
    // Skips most paths.
    let has_name = || path.as_bytes().windows(7).any(|part| part == b"/login/");
    let last = path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !LAST_SEGMENTS.iter().any(|name| name.as_bytes() == last) && !has_name() {
        return None;
    }
    if FIXED.iter().any(|fixed| path.strip_suffix(fixed).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))) {
        return Some(LoginPath::Certain);
    }
    let mut segments = path.split('/').skip_while(|segment| *segment != "auth").skip(1).peekable();
    // Segments of the mount, of which there is one at least.
    segments.next()?;
    let mut previous = "";
    let mut is_config = false;
    while let Some(segment) = segments.next() {
        let followers = segments.clone().count();
        match segment {
            // A user's name may follow, and that of LDAP and Okta may hold slashes.
            "login" if followers < 2 && !is_config => return Some(LoginPath::Certain),
            "login" => return Some(LoginPath::Possible),
            _ if followers == 0 && is_flow_end(previous, segment) => {
                return Some(if is_config { LoginPath::Possible } else { LoginPath::Certain });
            }
            _ => {}
        }
        is_config |= CONFIG_SEGMENTS.contains(&segment);
        previous = segment;
    }
    None
}

/// Returns true for the last two segments of the flows with a browser: OIDC (Vault, OpenBao) and SAML (Vault).
fn is_flow_end(previous: &str, last: &str) -> bool {
    match last {
        "auth_url" | "poll" => previous == "oidc",
        "callback" | "sso_service_url" | "token" => !CONFIG_SEGMENTS.contains(&previous),
        _ => false,
    }
}

/// Paths that log in wherever they stand: of Consul, and the second step of a login with a second factor.
const FIXED: [&str; 4] = ["acl/login", "acl/oidc/auth-url", "acl/oidc/callback", "sys/mfa/validate"];

/// Last segments of login paths without a name behind them.
const LAST_SEGMENTS: [&str; 8] =
    ["auth-url", "auth_url", "callback", "login", "poll", "sso_service_url", "token", "validate"];

/// Segments of an auth method's configuration paths. A role or user there may be called `login`.
const CONFIG_SEGMENTS: [&str; 7] = ["config", "groups", "map", "role", "roles", "user", "users"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_told_from_the_configuration_of_an_auth_method_as_far_as_the_path_tells() {
        let check = |path: &str, expected| {
            assert_eq!(classify(&ApiPath::parse(&format!("/v1/{path}")).unwrap()), expected, "{path}");
        };
        let certain = Some(LoginPath::Certain);
        let possible = Some(LoginPath::Possible);
        for path in [
            "auth/azure/login",
            "auth/azure/login/",
            "auth/team/azure/login",
            "auth/users/login",
            "ns/auth/userpass/login/me",
            "auth/jwt/cel/login",
            "auth/oidc/oidc/callback",
            "auth/team/oidc/oidc/auth_url",
            "auth/jwt/oidc/poll",
            "auth/saml/callback",
            "auth/saml/token",
            "team/auth/saml/sso_service_url",
            "acl/login",
            "acl/oidc/auth-url",
            "acl/oidc/callback",
            "team/sys/mfa/validate",
        ] {
            check(path, certain);
        }
        for path in [
            "auth/azure/role/login",
            "auth/userpass/users/login",
            "auth/team/users/azure/login",
            "auth/team/role/okta/login/me",
            "auth/ldap/login/ou/me",
            "auth/team/users/oidc/oidc/callback",
        ] {
            check(path, possible);
        }
        for path in [
            "auth/login",
            "secret/data/login",
            "auth/azure/role/web",
            "auth/kubernetes/role/token",
            "auth/userpass/users/callback",
            "auth/token/create",
            "auth/token",
            "auth/token/lookup-self",
            "identity/oidc/provider/a/token",
            "secret/data/token",
            "auth/azure/logins",
        ] {
            check(path, None);
        }
    }
}
