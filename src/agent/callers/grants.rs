//! Rights of a caller.

use std::collections::BTreeSet;

use crate::server_client::DerivedTokenOptions;

/// Endpoints that are granted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerRoute {
    /// Reads the token: `GET /agent/v1/token`.
    Token,
    /// Has the session check its token or log in, replaces a certificate, or clears a cache: `POST /agent/v1/check`,
    /// `/agent/v1/retry`, `/agent/v1/rotate`, cache-clear.
    Refresh,
    /// Sends requests through an API proxy.
    Proxy,
    /// Reads the secrets of `[credential.NAME]` through an API proxy, as the helpers of Docker and git do.
    Credentials,
    /// Gets tokens of `[identity.NAME]` at an identity listener.
    Identity,
    /// Reads the status of the agent.
    Status,
    /// Reads health and metrics.
    Health,
}

impl CallerRoute {
    /// All routes by their name in the configuration.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("token", Self::Token),
        ("refresh", Self::Refresh),
        ("proxy", Self::Proxy),
        ("credentials", Self::Credentials),
        ("identity", Self::Identity),
        ("status", Self::Status),
        ("health", Self::Health),
    ];

    /// Name in the configuration, in logs and in metrics.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, route)| *route == self).map_or("", |(name, _)| name)
    }
}

/// Rights of a caller, within those of the listener that it uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerGrants {
    /// Endpoints that it may use.
    pub routes: BTreeSet<CallerRoute>,
    /// Sessions that it may use; `None` for all of the listener.
    pub sessions: Option<BTreeSet<String>>,
    /// Identities that it may use; `None` for all of the listener.
    pub identities: Option<BTreeSet<String>>,
    /// Requests a second of all its processes together, as many at once; `None` for no limit.
    pub requests_per_second: Option<u32>,
    /// Connections of all its processes together; `None` for no limit but the listener's.
    pub connections: Option<usize>,
    /// Token that it gets in place of a session's; `None` for what the listener serves.
    pub derived_token: Option<CallerTokenOptions>,
}

/// The caller token, derived from the token of each session that the caller uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerTokenOptions {
    /// Policies, lifetime and uses of the token.
    pub child: DerivedTokenOptions,
    /// Processes that share one token.
    pub scope: CallerTokenScope,
}

/// Processes that share a caller token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallerTokenScope {
    /// All processes that are the caller.
    #[default]
    Caller,
    /// Each process has one until it ends.
    Process,
}

impl CallerTokenScope {
    /// Scopes by their name in the configuration.
    pub const NAMES: [(&'static str, Self); 2] = [("caller", Self::Caller), ("process", Self::Process)];

    /// Name in the configuration and in the status.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, scope)| *scope == self).map_or("", |(name, _)| name)
    }
}

impl CallerGrants {
    /// Returns true if it may use a session.
    pub fn permits_session(&self, session: &str) -> bool {
        self.sessions.as_ref().is_none_or(|sessions| sessions.contains(session))
    }

    /// Returns true if it may use an identity.
    pub fn permits_identity(&self, identity: &str) -> bool {
        self.identities.as_ref().is_none_or(|identities| identities.contains(identity))
    }

    /// Names of its routes.
    pub fn route_names(&self) -> Vec<&'static str> {
        self.routes.iter().map(|route| route.name()).collect()
    }
}
