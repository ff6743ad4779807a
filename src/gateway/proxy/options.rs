//! Options of the gateway's proxy.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use keyward_http::client::ProxyMode;
use url::Url;

use super::minting_guard::Exemption;
use super::rate_limiter::RateLimit;
use crate::actions::ActionOptions;

/// Settings of the proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// The platform's address: scheme, host and port only.
    pub upstream: Url,
    /// Other addresses of the platform that links in its responses may begin with: scheme, host and port only.
    pub aliases: Vec<Url>,
    /// PEM file of the CA bundle to use instead of the system store.
    pub ca_file: Option<PathBuf>,
    /// Proxy to the platform.
    pub proxy: ProxyMode,
    /// Maximum of concurrent connections to the platform.
    pub connections: usize,
    /// Time limit for a connection, TLS included.
    pub connect_timeout: Duration,
    /// Time limit for the response head, and for a pause in its body.
    pub response_timeout: Duration,
    /// Time that a call waits for a new token after the platform has rejected the current one.
    pub token_wait: Duration,
    /// Requests per second that are sent to the platform.
    pub limit: RateLimit,
    /// Handling of calls that the API history is about.
    pub actions: ActionOptions,
    /// Kinds of token-minting calls that are allowed.
    pub exempt: BTreeSet<Exemption>,
    /// Names that `Host` may have besides the listener's own address and `localhost`, without port.
    pub allowed_hosts: BTreeSet<String>,
}
