//! Proof -> login request -> token.

use std::time::Duration;

/// How a session logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The role to authenticate against.
    pub role: String,
    /// Path of the auth method on the server, such as `azure`; no `auth/` before it, no slash around it.
    pub mount: String,
    /// The server's namespace, where it has them.
    pub namespace: Option<String>,
    /// Ask for a wrapped answer that lives this long.
    pub wrap_ttl: Option<Duration>,
}
