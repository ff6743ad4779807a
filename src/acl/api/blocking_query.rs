//! Blocking queries: a read waits until the index is higher than the one that the caller knows.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::select_all;
use http::{Response, StatusCode};
use keyward_credentials::backoff::random_unit;
use keyward_telemetry::metrics::Metrics;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::error::ApiError;
use super::operation::{Operation, ReadOperation};
use super::query_string::{BlockingQuery, ConsistencyMode};
use super::request::ApiRequest;
use super::response::{ApiResponse, ReadResult, ResponseBody, set_default_policy_header, set_index_headers};
use super::response_cache::{CachedResponse, HashedKey};
use super::state::ApiState;
use crate::metrics::AclMetrics;
use crate::service::error::ServiceError;
use crate::store::Revision;

/// Reads, and repeats the read after each change until the index exceeds `blocking.index` or the wait is over. The caller
/// and its rights are checked anew each time.
pub(super) async fn read(
    state: &ApiState,
    operation: ReadOperation,
    request: &ApiRequest,
    blocking: BlockingQuery,
) -> Result<Response<ResponseBody>, ApiError> {
    let freshness = blocking.mode.freshness();
    // Consul's API: a read without an index, or with index 0, does not block.
    let end = (blocking.index > 0).then(|| Instant::now() + blocking.wait + jitter(blocking.wait));
    let mut over = false;
    // Built once: the key stays the same however often the read is repeated.
    let mut key = None;
    loop {
        // The keys and the end of the wait, or the response if there is nothing to wait for.
        let decide = |result: CachedResponse| match end {
            Some(end) if !over && result.index.0 <= blocking.index => ControlFlow::Continue((result.watch, end)),
            _ => ControlFlow::Break(result.response),
        };
        // Taken before the read: a concurrent write then invalidates too much, not too little.
        let revision = state.service.typed_store().store().last("");
        // A cached response was read while the store was open, and nothing was written since: no restore has started.
        let cached =
            revision.and_then(|revision| from_cache(state, operation, request, blocking.mode, &mut key, revision));
        let cached = match cached.map(decide) {
            Some(ControlFlow::Break(response)) => return Ok(response),
            Some(ControlFlow::Continue(wait)) => Some(wait),
            None => None,
        };
        let epoch = state.service.epoch(freshness).await?;
        let (watch, end) = if let Some(wait) = cached {
            wait
        } else {
            // Boxed, so that the read's memory is free during the wait: there may be ten thousand waits.
            let result =
                Box::pin(read_once(state, operation, request, blocking.mode, revision.zip(key.as_ref()))).await;
            let result = match result {
                Err(ApiError::Service(missing)) if missing.is_missing_namespace() => {
                    return Ok(missing_namespace(state, &missing, blocking.mode));
                }
                result => result?,
            };
            match decide(result) {
                ControlFlow::Continue(wait) => wait,
                ControlFlow::Break(response) => return Ok(response),
            }
        };
        let store = state.service.typed_store().store();
        let since = Revision(blocking.index);
        let _waiting = WaitingQuery::count(&state.metrics);
        let changed = select_all(watch.iter().map(|watched| store.changed(watched, since)));
        tokio::select! {
            // In this order: a change that comes with the end of the wait is still shown.
            biased;
            (changed, ..) = changed => {
                changed.map_err(|error| ApiError::Service(error.into()))?;
            }
            restored = state.service.wait_for_restore_since(epoch) => restored?,
            () = tokio::time::sleep_until(end) => over = true,
            () = state.stop.cancelled() => over = true,
        }
    }
}

/// A blocking query that waits; counted until it is dropped.
struct WaitingQuery(Gauge);

impl WaitingQuery {
    fn count(metrics: &Metrics) -> Self {
        let gauge = metrics.get::<AclMetrics>().blocking_queries;
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for WaitingQuery {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Returns the cached response if nothing was written since `revision`, and notes its caller for the audit.
fn from_cache(
    state: &ApiState,
    operation: ReadOperation,
    request: &ApiRequest,
    mode: ConsistencyMode,
    key: &mut Option<HashedKey>,
    revision: Revision,
) -> Option<CachedResponse> {
    let build_key = || request.cache_key(&state.service, Operation::Read(operation).index(), mode);
    let key = key.get_or_insert_with(|| state.response_cache.hash_key(build_key()));
    let result = state.response_cache.get(key, revision, state.service.now())?;
    request.audit_accessor(result.accessor);
    Some(result)
}

/// Reads once, and caches the response.
async fn read_once(
    state: &ApiState,
    operation: ReadOperation,
    request: &ApiRequest,
    mode: ConsistencyMode,
    key: Option<(Revision, &HashedKey)>,
) -> Result<CachedResponse, ApiError> {
    let freshness = mode.freshness();
    let ReadResult { response, index, watch, until } = operation.call(state, request, freshness).await?;
    let mut response = response.into_http();
    set_index_headers(response.headers_mut(), index, mode);
    set_default_policy_header(response.headers_mut(), state.service.default_policy);
    let mut result = CachedResponse { response, index, watch: watch.into(), accessor: None };
    // Not cached if the caller's token no longer resolves.
    if let Some((revision, key)) = key
        && let Ok(caller) = request.authenticate(state, freshness).await
    {
        result.accessor = caller.accessor();
        let until = caller.live.token.value.immutable().expiration_time.into_iter().chain(until).min();
        state.response_cache.insert(key, revision, &result, until);
    }
    Ok(result)
}

/// Builds the response to a read in a namespace that does not exist. It has the lowest index, with which a client may wait as soon
/// as the namespace is there: that of any record is higher.
fn missing_namespace(state: &ApiState, missing: &ServiceError, mode: ConsistencyMode) -> Response<ResponseBody> {
    let mut response = ApiResponse::text(StatusCode::NOT_FOUND, missing.to_string()).into_http();
    set_index_headers(response.headers_mut(), Revision(0), mode);
    set_default_policy_header(response.headers_mut(), state.service.default_policy);
    response
}

/// Returns up to a sixteenth of the wait, as Consul does, so that waits that began together do not end together.
fn jitter(wait: Duration) -> Duration {
    (wait / 16).mul_f64(random_unit())
}
