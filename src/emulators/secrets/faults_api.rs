//! Fault injection over HTTP, for people and scripts. Every request needs the key in `X-Faults-Key`.

use axum::extract::{Query, State as AxumState};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::faults::{CannedResponse, FaultInjector, Operation};
use crate::control_listener::{SecondsQuery, SwitchQuery, require_key};

/// Creates the routes: `GET /faults` returns the counters and the faults that are on; each `POST` sets one fault and returns the same.
pub(super) fn routes(faults: FaultInjector, key: SecretString) -> Router {
    let routes = Router::new()
        .route("/faults", get(show))
        .route("/faults/fail-next-logins", post(fail_next_logins))
        .route("/faults/refuse-renewals", post(refuse_renewals))
        .route("/faults/away", post(away))
        .route("/faults/hang", post(hang))
        .route("/faults/garbage", post(garbage))
        .route("/faults/openbao", post(openbao))
        .route("/faults/skew", post(skew))
        .route("/faults/revoke-all", post(revoke_all))
        .route("/faults/lose-state", post(lose_state))
        .with_state(faults);
    require_key(routes, key)
}

async fn show(AxumState(faults): AxumState<FaultInjector>) -> Json<Value> {
    state_json(&faults)
}

fn state_json(faults: &FaultInjector) -> Json<Value> {
    let counts = faults.counts();
    let requests: Map<String, Value> =
        Operation::ALL.iter().map(|operation| (operation.name().to_owned(), counts.get(*operation).into())).collect();
    Json(json!({
        "emulated": true, "requests": requests, "tokens": faults.tokens(), "away": faults.is_away(),
        "skew_seconds": faults.skew_seconds(),
    }))
}

#[derive(Deserialize)]
struct FailNextQuery {
    count: u32,
    status: Option<u16>,
    retry_after: Option<u64>,
}

async fn fail_next_logins(
    AxumState(faults): AxumState<FaultInjector>,
    Query(failing): Query<FailNextQuery>,
) -> Json<Value> {
    let mut response = CannedResponse::error(failing.status.unwrap_or(500), "the emulated server was told to fail");
    if let Some(seconds) = failing.retry_after {
        response = response.retry_after(seconds.to_string());
    }
    // Bounds the memory of the queue.
    for _ in 0..failing.count.min(10_000) {
        faults.respond_next(Operation::Login, response.clone());
    }
    state_json(&faults)
}

async fn refuse_renewals(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Json<Value> {
    faults.refuse_renewals(on);
    state_json(&faults)
}

async fn away(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Json<Value> {
    if on {
        faults.go_away().await;
    } else {
        faults.come_back().await;
    }
    state_json(&faults)
}

async fn hang(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Json<Value> {
    faults.set_unresponsive(on);
    state_json(&faults)
}

async fn garbage(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Json<Value> {
    faults.garbage(on);
    state_json(&faults)
}

async fn openbao(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SwitchQuery { on }): Query<SwitchQuery>,
) -> Json<Value> {
    faults.respond_as_openbao(on);
    state_json(&faults)
}

async fn skew(
    AxumState(faults): AxumState<FaultInjector>,
    Query(SecondsQuery { seconds }): Query<SecondsQuery<i64>>,
) -> Json<Value> {
    faults.skew(seconds);
    state_json(&faults)
}

async fn revoke_all(AxumState(faults): AxumState<FaultInjector>) -> Response {
    faults.revoke_all();
    state_json(&faults).into_response()
}

async fn lose_state(AxumState(faults): AxumState<FaultInjector>) -> Response {
    faults.lose_state();
    state_json(&faults).into_response()
}
