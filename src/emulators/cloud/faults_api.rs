//! The dials over HTTP, for people and scripts. Every call carries the key in `X-Dials-Key`.

use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State as Held};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use super::faults::{Dials, Failure};
use super::serve::answer;
use crate::emulators::control_listener::{Seconds, Switch, locked};

/// `GET /dials` tells how often each door was asked; each `POST` turns one dial and answers with the same.
pub(super) fn routes(dials: Dials, key: SecretString) -> Router {
    let routes = Router::new()
        .route("/dials", get(show))
        .route("/dials/fail-next-tokens", post(fail_next_tokens))
        .route("/dials/delay", post(delay))
        .route("/dials/refuse", post(refuse))
        .route("/dials/skew", post(skew))
        .route("/dials/audience", post(audience))
        .route("/dials/token-life", post(token_life))
        .route("/dials/block-instance", post(block_instance))
        .route("/dials/reset", post(reset))
        .with_state(dials);
    locked(routes, key)
}

async fn show(Held(dials): Held<Dials>) -> Response {
    shown(&dials)
}

fn shown(dials: &Dials) -> Response {
    answer(StatusCode::OK, &json!({"emulated": true, "requests": dials.counts()}))
}

#[derive(Deserialize)]
struct Failing {
    count: usize,
    status: u16,
    retry_after: Option<u64>,
}

async fn fail_next_tokens(Held(dials): Held<Dials>, Query(failing): Query<Failing>) -> Response {
    let failure = Failure { status: failing.status, body: None, retry_after: failing.retry_after };
    // Nobody wants more; what is queued takes memory.
    dials.fail_next_tokens_with(failing.count.min(10_000), &failure);
    shown(&dials)
}

async fn delay(Held(dials): Held<Dials>, Query(Seconds { seconds }): Query<Seconds<u64>>) -> Response {
    dials.delay(Duration::from_secs(seconds));
    shown(&dials)
}

async fn skew(Held(dials): Held<Dials>, Query(Seconds { seconds }): Query<Seconds<i64>>) -> Response {
    dials.skew(seconds);
    shown(&dials)
}

async fn token_life(Held(dials): Held<Dials>, Query(Seconds { seconds }): Query<Seconds<u64>>) -> Response {
    dials.token_life(Duration::from_secs(seconds));
    shown(&dials)
}

async fn refuse(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Response {
    dials.refuse(on);
    shown(&dials)
}

async fn block_instance(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Response {
    dials.block_instance(on);
    shown(&dials)
}

#[derive(Deserialize)]
struct Audience {
    value: Option<String>,
}

async fn audience(Held(dials): Held<Dials>, Query(Audience { value }): Query<Audience>) -> Response {
    dials.audience(value);
    shown(&dials)
}

async fn reset(Held(dials): Held<Dials>) -> Response {
    dials.reset();
    shown(&dials)
}
