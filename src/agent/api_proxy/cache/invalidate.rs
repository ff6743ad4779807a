//! Selects the entries that a write, a revocation or a caller invalidates.

use super::key::TokenScope;

/// Entries to invalidate.
#[derive(Clone)]
pub(crate) enum Invalidate<'a> {
    /// All entries.
    All,
    /// Entries in a namespace whose path has this prefix.
    Path(&'a str, &'a str),
    /// The values among them, without leases.
    Values(&'a str, &'a str),
    /// Entries with this lease, or a lease below it.
    Lease(&'a str),
    /// Entries that were requested with this token, and the entry that issued it.
    Token(&'a [u8]),
    /// The same by a token's accessor, for tokens that this cache holds.
    Accessor(&'a str),
    /// Entries that were requested with callers' own tokens.
    Callers,
    /// Leased entries: all, or those of one scope.
    Leases(Option<TokenScope>),
}

impl std::fmt::Debug for Invalidate<'_> {
    /// Prints only the kind: the values are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Path(..) => "Path",
            Self::Values(..) => "Values",
            Self::Lease(_) => "Lease",
            Self::Token(_) => "Token",
            Self::Accessor(_) => "Accessor",
            Self::Callers => "Callers",
            Self::Leases(_) => "Leases",
        })
    }
}
