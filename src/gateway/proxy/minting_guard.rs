//! Refuses calls that mint platform tokens, unless the configuration exempts them: such tokens outlive the gateway's
//! own.

use std::collections::BTreeSet;

use http::{Method, StatusCode};

use super::path::percent_decode;
use crate::jsonapi_error::JsonApiError;

/// An allowed kind of token-minting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exemption(usize);

/// Names of the kinds. The platform mints such a token by `POST /api/v2/OWNERS/ID/LAST`; Terraform Enterprise mints those of its
/// SCIM API by `POST /api/v2/admin/scim-tokens`. Tokens for an organization's metrics are from HCP Terraform's API documentation,
/// "Metrics service tokens".
const NAMES: [&str; 7] = [
    "admin/scim-tokens",
    "agent-pools/authentication-tokens",
    "organizations/authentication-token",
    "organizations/metrics-tokens",
    "teams/authentication-token",
    "teams/authentication-tokens",
    "users/authentication-tokens",
];

impl Exemption {
    /// Finds a kind by its name.
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().position(|candidate| *candidate == name).map(Self)
    }

    /// Returns the name, such as `teams/authentication-tokens`.
    pub fn name(self) -> &'static str {
        NAMES.get(self.0).copied().unwrap_or_default()
    }

    /// Iterates over the names of all kinds.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().copied()
    }
}

/// Checks a call of the API. Reading, listing and deleting tokens is always allowed.
pub(super) fn check_minting(method: &Method, path: &str, exempt: &BTreeSet<Exemption>) -> Result<(), JsonApiError> {
    if !matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
        return Ok(());
    }
    let Some(name) = minted_token_kind(path) else { return Ok(()) };
    let advice = match Exemption::parse(&name) {
        Some(kind) if exempt.contains(&kind) => return Ok(()),
        Some(kind) => format!("; add \"{}\" to gateway.exempt to allow it", kind.name()),
        None => String::new(),
    };
    let detail = format!("the gateway does not mint platform tokens for callers: they would outlive its own{advice}");
    Err(JsonApiError::new(StatusCode::FORBIDDEN, detail))
}

/// Returns the kind of token that a path mints, one of [`NAMES`] or one with an unknown owner. Interprets the path as
/// laxly as any server might: without encoding, empty segments, case, and whatever follows a dot or semicolon in the
/// last segment.
fn minted_token_kind(path: &str) -> Option<String> {
    let mut plain = path.to_owned();
    for _ in 0..MAX_DECODES {
        if !plain.contains('%') {
            break;
        }
        plain = percent_decode(&plain);
    }
    let plain = plain.to_ascii_lowercase();
    let segments: Vec<&str> = plain.split(['/', '\\']).filter(|segment| !segment.is_empty()).collect();
    let last = segments.last()?.split(['.', ';']).next()?;
    let mints = matches!(last, "authentication-token" | "authentication-tokens" | "metrics-tokens" | "scim-tokens");
    mints.then(|| format!("{}/{last}", segments.get(2).copied().unwrap_or_default()))
}

/// Rounds of percent-decoding that servers on the way may do.
const MAX_DECODES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_minting_calls_are_refused_in_every_spelling_unless_exempt() {
        let teams: BTreeSet<_> = Exemption::parse("teams/authentication-tokens").into_iter().collect();
        let allowed = |method: &str, path: &str, exempt: &BTreeSet<Exemption>| {
            check_minting(&method.parse().unwrap(), path, exempt).is_ok()
        };
        for path in [
            "/api/v2/teams/team-1/authentication-token",
            "/api/v2/teams/team-1/authentication-tokens",
            "/api/v2/teams/team-1/authentication-tokens/",
            "/api/v2//teams/team-1//authentication-tokens",
            "/api/v2/teams/team-1/authentication%2Dtokens",
            "/api/v2/teams/team-1/authentication%252Dtokens",
            "/api/v2/teams/team-1%2Fauthentication-tokens",
            "/api/v2/teams/team-1/authentication-tokens.json",
            "/api/v2/teams/team-1/authentication-tokens;x",
            "/api/v2/teams/team-1/Authentication-Tokens",
            "/api/v2/users/user-1/authentication-tokens",
            "/api/v2/organizations/o/authentication-token",
            "/api/v2/organizations/o/metrics-tokens",
            "/api/v2/organizations/o/metrics%2Dtokens.json",
            "/api/v2/agent-pools/apool-1/authentication-tokens",
            "/api/v2/others/x/authentication-tokens",
            "/api/v2/admin/scim-tokens",
            "/api/v2/admin/scim%2Dtokens/",
        ] {
            for method in ["POST", "PUT", "PATCH"] {
                assert!(!allowed(method, path, &BTreeSet::new()), "{method} {path}");
            }
            for method in ["GET", "HEAD", "DELETE"] {
                assert!(allowed(method, path, &BTreeSet::new()), "{method} {path}");
            }
        }
        assert!(allowed("POST", "/api/v2/teams/team-1/authentication-tokens", &teams));
        let scim: BTreeSet<_> = Exemption::parse("admin/scim-tokens").into_iter().collect();
        assert!(allowed("POST", "/api/v2/admin/scim-tokens", &scim));
        assert!(allowed("PATCH", "/api/v2/admin/scim-settings", &BTreeSet::new()));
        assert!(!allowed("POST", "/api/v2/teams/team-1/authentication-token", &teams));
        assert!(!allowed("POST", "/api/v2/users/user-1/authentication-tokens", &teams));
        for path in ["/api/v2/teams", "/api/v2/organizations/o/team-tokens", "/api/v2/workspaces/authentication/runs"] {
            assert!(allowed("POST", path, &BTreeSet::new()), "{path}");
        }
        assert!(Exemption::names().all(|name| Exemption::parse(name).is_some_and(|kind| kind.name() == name)));
    }
}
