//! Options of one API proxy listener.

use std::time::Duration;

use super::cache::CacheLimits;
use super::namespace::AllowedNamespaces;
use super::rules::{Rule, Rules};
use crate::encrypted_file::PersistOptions;

/// Options of one listener: which requests it forwards, and with whose token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiProxyOptions {
    /// Requests that carry the session's token.
    pub token_mode: TokenMode,
    /// Paths and methods that are forwarded.
    pub rules: Rules,
    /// Namespaces that callers may name.
    pub namespaces: AllowedNamespaces,
    /// Callers may log in through the listener, with a login of their own.
    pub logins: bool,
    /// Callers must send `X-Vault-Request: true`.
    pub request_header: bool,
    /// Bounds the connections to the server.
    pub connections: usize,
    /// Time from the last part of the request to the head of the server's response.
    pub response_timeout: Duration,
    /// The response cache; `None` for no cache.
    pub cache: Option<CacheOptions>,
    /// Limits of each caller, by rule index; `None` for a caller that may not use the listener. Empty without
    /// callers.
    pub callers: Vec<Option<CallerProxyRules>>,
}

impl ApiProxyOptions {
    /// Converts the namespaces to lower case, for servers that read them in any case.
    pub(super) fn fold_namespaces(&mut self) {
        self.namespaces.fold_case();
        let limits = self.callers.iter_mut().flatten();
        limits.filter_map(|limits| limits.namespaces.as_mut()).for_each(AllowedNamespaces::fold_case);
    }
}

/// Limits of a caller's requests, within those of the listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerProxyRules {
    /// Paths and methods.
    pub rules: Rules,
    /// Namespaces that it may name; `None` for all that the listener allows.
    pub namespaces: Option<AllowedNamespaces>,
}

/// Requests that carry the session's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenMode {
    /// All; a caller's own token is removed.
    Always,
    /// Those without a token of the caller's own.
    WhenMissing,
}

/// Options of a listener's response cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bounds of size and age.
    pub limits: CacheLimits,
    /// Paths of values that stay until they are written.
    pub values: Vec<Rule>,
    /// Paths that issue credentials and tokens with a lease.
    pub leases: Vec<Rule>,
    /// File that keeps the entries over a restart; `None` for no file.
    pub persist: Option<PersistOptions>,
}
