//! Fault injection over HTTP, for people and scripts. Every request needs the key in `X-Faults-Key`.

use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State as AxumState};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde_json::json;

use super::faults::{Failure, FaultInjector};
use super::serve::json_response;
use crate::control_listener::{SecondsQuery, SwitchQuery, require_key};

/// Creates the routes: `GET /faults` returns the counters and the faults that are on; each `POST` sets one fault and returns the same.
pub(super) fn routes(faults: FaultInjector, key: SecretString) -> Router {
    let routes = Router::new()
        .route("/faults", get(show))
        .route("/faults/fail-next-tokens", post(fail_next_tokens))
        .route("/faults/delay", post(delay))
        .route("/faults/refuse", post(refuse))
        .route("/faults/skew", post(skew))
        .route("/faults/audience", post(audience))
        .route("/faults/token-life", post(token_life))
        .route("/faults/block-instance", post(block_instance))
        .route("/faults/reset", post(reset))
        .with_state(faults);
    require_key(routes, key)
}

async fn show(AxumState(faults): AxumState<FaultInjector>) -> Response {
    show_counts(&faults)
}

fn show_counts(faults: &FaultInjector) -> Response {
    let settings = faults.settings();
    let state = json!({
        "emulated": true, "requests": faults.counts(), "refusing": faults.is_refusing(),
        "skew_seconds": settings.skew_seconds, "audience": settings.audience,
    });
    json_response(StatusCode::OK, &state)
}

#[derive(Deserialize)]
struct FailNextQuery {
    count: usize,
    status: u16,
    retry_after: Option<u64>,
}

async fn fail_next_tokens(
    AxumState(faults): AxumState<FaultInjector>,
    Query(failing): Query<FailNextQuery>,
) -> Response {
    let failure = Failure { status: failing.status, body: None, retry_after: failing.retry_after };
    // Bounds the memory of the queue.
    faults.fail_next_tokens_with(failing.count.min(10_000), &failure);
    show_counts(&faults)
}

async fn delay(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SecondsQuery { seconds }): Query<SecondsQuery<u64>>,
) -> Response {
    faults.delay(Duration::from_secs(seconds));
    show_counts(&faults)
}

async fn skew(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SecondsQuery { seconds }): Query<SecondsQuery<i64>>,
) -> Response {
    faults.skew(seconds);
    show_counts(&faults)
}

async fn token_life(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SecondsQuery { seconds }): Query<SecondsQuery<u64>>,
) -> Response {
    faults.token_life(Duration::from_secs(seconds));
    show_counts(&faults)
}

async fn refuse(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Response {
    faults.refuse(on);
    faults.wait_until_settled().await;
    show_counts(&faults)
}

async fn block_instance(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Response {
    faults.block_instance(on);
    show_counts(&faults)
}

#[derive(Deserialize)]
struct Audience {
    value: Option<String>,
}

async fn audience(AxumState(faults): AxumState<FaultInjector>, Query(Audience { value }): Query<Audience>) -> Response {
    faults.audience(value);
    show_counts(&faults)
}

async fn reset(AxumState(faults): AxumState<FaultInjector>) -> Response {
    faults.reset();
    faults.wait_until_settled().await;
    show_counts(&faults)
}
