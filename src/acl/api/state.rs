//! Shared state of the API handlers, and the options of the API.

use std::collections::BTreeSet;
use std::sync::Arc;

use keyward_telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use super::login_rate_limit::{LoginLimit, LoginRateLimiter};
use super::response_cache::ResponseCache;
use crate::service::acl_service::AclService;
use crate::service::bootstrap::ResetFile;
use crate::service::login::LoginMethods;
use crate::service::snapshot::RestoreRunner;

/// Options of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiOptions {
    /// Prefix of every path before `/v1`, such as `/acl-server`; empty for none.
    pub base_path: String,
    /// Accepts the token as `token` in the query too. Proxies and access logs tend to record queries.
    pub token_in_query: bool,
    /// Rate limit of logins from one source, across all auth methods.
    pub login_limit: LoginLimit,
    /// Names that `Host` may carry besides `localhost` and the socket's own address. Checked on loopback always, and
    /// elsewhere if there is one.
    pub allowed_hosts: BTreeSet<String>,
}

impl Default for ApiOptions {
    fn default() -> Self {
        let login_limit = LoginLimit::default();
        let allowed_hosts = BTreeSet::new();
        Self { base_path: String::new(), token_in_query: true, login_limit, allowed_hosts }
    }
}

/// Shared state of the API handlers.
#[derive(Debug, Clone)]
pub(crate) struct ApiState {
    /// Service over the records.
    pub service: Arc<AclService>,
    /// Auth methods of the configuration.
    pub methods: Arc<LoginMethods>,
    /// Restores of this server, of which one runs at a time.
    pub restores: Arc<RestoreRunner>,
    /// Rate limiter of logins by source.
    pub login_limiter: Arc<LoginRateLimiter>,
    /// Responses to reads, valid until the next write.
    pub response_cache: Arc<ResponseCache>,
    /// Options of the API.
    pub options: Arc<ApiOptions>,
    /// File by which an operator allows another bootstrap.
    pub reset: ResetFile,
    /// Metrics of the requests.
    pub metrics: Metrics,
    /// Cancelled when the server stops; blocking queries are answered then.
    pub stop: CancellationToken,
}
