//! Classes of paths of the servers' API, for metrics.

/// Class of a path of Vault, OpenBao or a Consul-compatible server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathClass {
    /// Logins.
    Login,
    /// Look-ups, renewals, creations and revocations of tokens.
    Token,
    /// Leases of secrets.
    Lease,
    /// Other system paths.
    System,
    /// All other paths: secrets, mostly.
    Secret,
}

impl PathClass {
    /// Names of the classes in metrics, by index.
    pub(crate) const NAMES: [&str; 5] = ["login", "token", "lease", "system", "secret"];

    /// Classifies a path below `/v1/`, as a caller may write it.
    pub(crate) fn from_path(path: &str) -> Self {
        // By bytes: a search for characters costs more than such short segments are worth.
        let mut segments = path.as_bytes().split(|byte| *byte == b'/');
        match (segments.next(), segments.next()) {
            (Some(b"auth"), Some(b"token")) | (Some(b"acl"), Some(b"token" | b"logout")) => Self::Token,
            (Some(b"auth"), Some(_)) if segments.any(|segment| segment == b"login") => Self::Login,
            (Some(b"acl"), Some(b"login")) => Self::Login,
            (Some(b"sys"), Some(b"leases" | b"renew" | b"revoke")) => Self::Lease,
            (Some(b"sys" | b"auth" | b"acl" | b"identity"), _) => Self::System,
            _ => Self::Secret,
        }
    }

    /// Returns the place of the class in [`PathClass::NAMES`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_class() {
        let check = |path: &str, expected: &str| {
            assert_eq!(PathClass::NAMES[PathClass::from_path(path).index()], expected, "{path}");
        };
        check("auth/azure/login", "login");
        check("auth/team/azure/login", "login");
        check("auth/userpass/login/me", "login");
        check("acl/login", "login");
        check("auth/token/renew-self", "token");
        check("acl/token/self", "token");
        check("acl/logout", "token");
        check("sys/leases/renew", "lease");
        check("sys/health", "system");
        check("auth/azure/role/web", "system");
        check("acl/policies", "system");
        check("identity/entity", "system");
        check("secret/data/app", "secret");
        check("terraform/creds/ci", "secret");
        check("kv/web/key", "secret");
        check("", "secret");
    }
}
