//! Paths that revoke or renew a lease or a token.

use super::path::ApiPath;

/// Kind of name that a revocation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RevocationKind {
    /// A lease, or all below a prefix.
    Lease,
    Token,
    Accessor,
    /// No name: the token that the request carries.
    OwnToken,
}

/// Paths that revoke. A name may follow in the path, or stand in the body.
const REVOCATIONS: [(&str, RevocationKind); 10] = [
    ("auth/token/revoke", RevocationKind::Token),
    ("auth/token/revoke-accessor", RevocationKind::Accessor),
    ("auth/token/revoke-orphan", RevocationKind::Token),
    ("auth/token/revoke-self", RevocationKind::OwnToken),
    ("sys/leases/revoke", RevocationKind::Lease),
    ("sys/leases/revoke-force", RevocationKind::Lease),
    ("sys/leases/revoke-prefix", RevocationKind::Lease),
    ("sys/revoke", RevocationKind::Lease),
    ("sys/revoke-force", RevocationKind::Lease),
    ("sys/revoke-prefix", RevocationKind::Lease),
];

/// Paths that renew, likewise.
const RENEWALS: [&str; 5] =
    ["auth/token/renew", "auth/token/renew-accessor", "auth/token/renew-self", "sys/leases/renew", "sys/renew"];

/// Returns the kind of a revocation's path, perhaps behind a namespace, and the name in it, which may be empty.
pub(super) fn revocation_in_path<'a>(path: &'a ApiPath<'_>) -> Option<(RevocationKind, &'a str)> {
    path.suffixes().find_map(|suffix| {
        REVOCATIONS.iter().find_map(|(revocation, kind)| name_below(suffix, revocation).map(|name| (*kind, name)))
    })
}

/// Returns true for a path that renews, perhaps behind a namespace.
pub(super) fn is_renewal(path: &ApiPath<'_>) -> bool {
    path.suffixes().any(|suffix| RENEWALS.iter().any(|renewal| name_below(suffix, renewal).is_some()))
}

/// Returns the rest of a path behind `parent`; empty for `parent` itself.
fn name_below<'a>(path: &'a str, parent: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(parent)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}
