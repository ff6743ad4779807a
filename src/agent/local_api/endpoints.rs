//! The endpoints of the local API: one table for their handlers, the rights of callers, and the audit.

use crate::callers::CallerRoute;

/// An endpoint.
pub(super) struct Endpoint {
    /// Path; one that ends in `/` is followed by a name.
    pub(super) path: &'static str,
    pub(super) route: Route,
    /// Allowed methods: [`READ`] or [`WRITE`].
    pub(super) methods: &'static str,
    /// Route that a caller must be granted.
    pub(super) required: CallerRoute,
    /// Name of its use for the audit. `None` for the probes, which are recorded only where they are refused, and which are all that
    /// a listener for health has.
    pub(super) audited: Option<&'static str>,
}

/// Handler of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Route {
    Token,
    Check,
    Retry,
    Refresh,
    Rotate,
    Status,
    Live,
    Ready,
    Component,
    Started,
    Metrics,
}

pub(super) const READ: &str = "GET, HEAD";
pub(super) const WRITE: &str = "POST";

const ENDPOINTS: [Endpoint; 11] = [
    endpoint("/agent/v1/token", Route::Token, READ, CallerRoute::Token, Some("token")),
    endpoint("/agent/v1/check", Route::Check, WRITE, CallerRoute::Refresh, Some("check")),
    endpoint("/agent/v1/retry", Route::Retry, WRITE, CallerRoute::Refresh, Some("retry")),
    endpoint("/agent/v1/refresh", Route::Refresh, WRITE, CallerRoute::Refresh, Some("refresh")),
    endpoint("/agent/v1/rotate", Route::Rotate, WRITE, CallerRoute::Refresh, Some("rotate")),
    endpoint("/agent/v1/status", Route::Status, READ, CallerRoute::Status, Some("status")),
    endpoint("/livez", Route::Live, READ, CallerRoute::Health, None),
    endpoint("/readyz", Route::Ready, READ, CallerRoute::Health, None),
    endpoint("/readyz/", Route::Component, READ, CallerRoute::Health, None),
    endpoint("/startupz", Route::Started, READ, CallerRoute::Health, None),
    endpoint("/metrics", Route::Metrics, READ, CallerRoute::Health, None),
];

const fn endpoint(
    path: &'static str,
    route: Route,
    methods: &'static str,
    required: CallerRoute,
    audited: Option<&'static str>,
) -> Endpoint {
    Endpoint { path, route, methods, required, audited }
}

impl Endpoint {
    /// Returns the endpoint at a path.
    pub(super) fn find(path: &str) -> Option<&'static Self> {
        let is_prefix = |endpoint: &Self| endpoint.path.ends_with('/') && path.starts_with(endpoint.path);
        ENDPOINTS.iter().find(|endpoint| path == endpoint.path || is_prefix(endpoint))
    }
}

/// Names the use of a path for the audit; `None` for the probes.
pub fn audited_route(path: &str) -> Option<&'static str> {
    Endpoint::find(path)?.audited
}
