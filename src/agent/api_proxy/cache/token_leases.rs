//! Cached tokens, and the leases that were requested with them: the cache renews the token and so learns of its end, with which
//! the leases end too.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::entry::LeaseRef;
use super::key::{CacheKey, TokenScope};

/// Leases of callers' own tokens, by token.
#[derive(Debug, Default)]
pub(super) struct TokenLeases(HashMap<TokenScope, CachedToken>);

#[derive(Debug, Default)]
struct CachedToken {
    /// Entries that issued the token, usually one.
    issuers: Vec<Arc<CacheKey>>,
    leases: HashSet<Arc<CacheKey>>,
}

impl TokenLeases {
    /// Memory for a lease besides its key, in bytes.
    pub(super) const OVERHEAD: usize = size_of::<(TokenScope, CachedToken)>() + size_of::<Arc<CacheKey>>();

    /// Returns true if an entry issued the token.
    pub(super) fn holds(&self, token: TokenScope) -> bool {
        self.0.get(&token).is_some_and(|token| !token.issuers.is_empty())
    }

    /// Returns the entries that issued the token.
    pub(super) fn issuers(&self, token: TokenScope) -> Vec<Arc<CacheKey>> {
        self.0.get(&token).map_or_else(Vec::new, |token| token.issuers.clone())
    }

    pub(super) fn insert(&mut self, key: &Arc<CacheKey>, lease_ref: Option<&LeaseRef>) {
        let Some(scope) = token_scope(key, lease_ref) else { return };
        let token = self.0.entry(scope).or_default();
        if scope == key.scope {
            token.leases.insert(Arc::clone(key));
        } else {
            token.issuers.push(Arc::clone(key));
        }
    }

    /// Removes an entry. Returns the leases that end with it: those of a token that no other entry issued.
    pub(super) fn remove(&mut self, key: &CacheKey, lease_ref: Option<&LeaseRef>) -> HashSet<Arc<CacheKey>> {
        let Some(scope) = token_scope(key, lease_ref) else { return HashSet::new() };
        let Some(token) = self.0.get_mut(&scope) else { return HashSet::new() };
        token.leases.remove(key);
        token.issuers.retain(|issuer| **issuer != *key);
        if !token.issuers.is_empty() {
            return HashSet::new();
        }
        self.0.remove(&scope).map(|token| token.leases).unwrap_or_default()
    }

    /// Returns the leases of tokens that no entry issued.
    pub(super) fn orphans(&self) -> Vec<Arc<CacheKey>> {
        let unknown = self.0.values().filter(|token| token.issuers.is_empty());
        unknown.flat_map(|token| token.leases.iter().map(Arc::clone)).collect()
    }
}

/// Returns the token that a lease was requested with, or that an entry issued; `None` for other entries. A token that was
/// requested with a caller's own token is a lease of that one only, so that no chain of tokens arises.
fn token_scope(key: &CacheKey, lease_ref: Option<&LeaseRef>) -> Option<TokenScope> {
    match lease_ref? {
        _ if key.scope.is_callers() => Some(key.scope),
        LeaseRef::Token(token, ..) => Some(TokenScope::from_token(token.secret().expose_secret().as_bytes())),
        LeaseRef::Secret(_) => None,
    }
}
