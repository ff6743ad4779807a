//! The dials over HTTP, for people and scripts. Every call carries the key in `X-Dials-Key`.

use axum::extract::{Query, State as Held};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::faults::{Canned, Dials, Operation};
use crate::emulators::control_listener::{Seconds, Switch, locked};

/// `GET /dials` tells how often each operation was asked for; each `POST` turns one dial and answers with the same.
pub(super) fn routes(dials: Dials, key: SecretString) -> Router {
    let routes = Router::new()
        .route("/dials", get(show))
        .route("/dials/fail-next-logins", post(fail_next_logins))
        .route("/dials/refuse-renewals", post(refuse_renewals))
        .route("/dials/away", post(away))
        .route("/dials/hang", post(hang))
        .route("/dials/garbage", post(garbage))
        .route("/dials/openbao", post(openbao))
        .route("/dials/skew", post(skew))
        .route("/dials/revoke-all", post(revoke_all))
        .route("/dials/lose-state", post(lose_state))
        .with_state(dials);
    locked(routes, key)
}

async fn show(Held(dials): Held<Dials>) -> Json<Value> {
    shown(&dials)
}

fn shown(dials: &Dials) -> Json<Value> {
    let counts = dials.counts();
    let requests: Map<String, Value> =
        Operation::ALL.iter().map(|operation| (operation.name().to_owned(), counts.of(*operation).into())).collect();
    Json(json!({"emulated": true, "requests": requests, "tokens": dials.tokens()}))
}

#[derive(Deserialize)]
struct Failing {
    count: u32,
    status: Option<u16>,
    retry_after: Option<u64>,
}

async fn fail_next_logins(Held(dials): Held<Dials>, Query(failing): Query<Failing>) -> Json<Value> {
    let mut answer = Canned::error(failing.status.unwrap_or(500), "the emulated server was told to fail");
    if let Some(seconds) = failing.retry_after {
        answer = answer.retry_after(seconds.to_string());
    }
    // Nobody wants more; what is in line takes memory.
    for _ in 0..failing.count.min(10_000) {
        dials.answer_next(Operation::Login, answer.clone());
    }
    shown(&dials)
}

async fn refuse_renewals(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.refuse_renewals(on);
    shown(&dials)
}

async fn away(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    if on {
        dials.go_away().await;
    } else {
        dials.come_back().await;
    }
    shown(&dials)
}

async fn hang(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.hang(on);
    shown(&dials)
}

async fn garbage(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.garbage(on);
    shown(&dials)
}

async fn openbao(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.answer_as_openbao(on);
    shown(&dials)
}

async fn skew(Held(dials): Held<Dials>, Query(Seconds { seconds }): Query<Seconds<i64>>) -> Json<Value> {
    dials.skew(seconds);
    shown(&dials)
}

async fn revoke_all(Held(dials): Held<Dials>) -> Response {
    dials.revoke_all();
    shown(&dials).into_response()
}

async fn lose_state(Held(dials): Held<Dials>) -> Response {
    dials.lose_state();
    shown(&dials).into_response()
}
