//! The dials over HTTP, for people and scripts. Every call carries the key in `X-Dials-Key`.

use std::time::Duration;

use axum::extract::{Query, State as Held};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::edition::Edition;
use super::faults::{Dials, NEW_REGISTRY_ROUTES, OLD_REGISTRY_ROUTES};
use super::page::Paging;
use super::records::Presented;
use crate::emulators::control_listener::{Switch, locked};

/// `GET /dials` tells how they stand; each `POST` turns one and answers with the same.
pub(super) fn routes(dials: Dials, key: SecretString) -> Router {
    let routes = Router::new()
        .route("/dials", get(show))
        .route("/dials/calls", get(calls))
        .route("/dials/edition", post(edition))
        .route("/dials/paging", post(paging))
        .route("/dials/limit", post(limit))
        .route("/dials/old-registry-routes", post(old_registry_routes))
        .route("/dials/new-registry-routes", post(new_registry_routes))
        .route("/dials/fail-next", post(fail_next))
        .route("/dials/lose-next-answers", post(lose_next_answers))
        .route("/dials/delay", post(delay))
        .route("/dials/blobs", post(blobs))
        .route("/dials/relative-downloads", post(relative_downloads))
        .route("/dials/mint", post(mint))
        .route("/dials/rotate", post(rotate))
        .route("/dials/revoke", post(revoke))
        .route("/dials/revoke-all", post(revoke_all))
        .route("/dials/fill", post(fill))
        .route("/dials/forget-calls", post(forget_calls))
        .with_state(dials);
    locked(routes, key)
}

async fn show(Held(dials): Held<Dials>) -> Json<Value> {
    shown(&dials)
}

fn shown(dials: &Dials) -> Json<Value> {
    let state = dials.state();
    let release = match &state.turned.edition {
        Edition::Hosted => None,
        Edition::SelfManaged { release } => Some(release),
    };
    Json(json!({
        "emulated": true, "requests": state.records.total(), "self_managed_release": release,
        "paging": format!("{:?}", state.turned.paging), "requests_per_second": state.turned.limit,
        "removed_routes": state.turned.removed, "failing": state.turned.failing.len(), "losing": state.turned.losing,
        "delay_milliseconds": state.turned.delay.as_millis(), "blob_mib": state.turned.blob_mib,
    }))
}

/// The last requests: what was called, with which token by its id, and how it was answered.
async fn calls(Held(dials): Held<Dials>) -> Json<Value> {
    let calls = dials.calls().into_iter().map(|call| {
        let token = match &call.token {
            Presented::Absent => "absent",
            Presented::Unknown => "unknown",
            Presented::Known(id) => id,
        };
        json!({
            "method": call.method.as_str(), "route": call.route, "path": call.path, "token": token,
            "status": call.status, "agent": call.agent,
        })
    });
    Json(calls.collect())
}

/// `?release=v202207-1`; without it the hosted product.
#[derive(Deserialize)]
struct Release {
    release: Option<String>,
}

async fn edition(Held(dials): Held<Dials>, Query(Release { release }): Query<Release>) -> Json<Value> {
    dials.edition(release.map_or(Edition::Hosted, |release| Edition::SelfManaged { release }));
    shown(&dials)
}

/// `?mode=always`.
#[derive(Deserialize)]
struct Mode {
    mode: String,
}

async fn paging(Held(dials): Held<Dials>, Query(Mode { mode }): Query<Mode>) -> Response {
    let paging = match mode.as_str() {
        "opt-in" => Paging::OptIn,
        "always" => Paging::Always,
        "never" => Paging::Never,
        "looping" => Paging::Looping,
        _ => return wrong("mode is one of opt-in, always, never, looping"),
    };
    dials.paging(paging);
    shown(&dials).into_response()
}

fn wrong(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({"errors": [why]}))).into_response()
}

/// `?per_second=30`; without it any number.
#[derive(Deserialize)]
struct Limit {
    per_second: Option<u32>,
}

async fn limit(Held(dials): Held<Dials>, Query(Limit { per_second }): Query<Limit>) -> Json<Value> {
    dials.limit(per_second);
    shown(&dials)
}

async fn old_registry_routes(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.routes(OLD_REGISTRY_ROUTES, on);
    shown(&dials)
}

async fn new_registry_routes(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.routes(NEW_REGISTRY_ROUTES, on);
    shown(&dials)
}

#[derive(Deserialize)]
struct Failing {
    count: usize,
    status: Option<u16>,
    retry_after: Option<u64>,
}

async fn fail_next(Held(dials): Held<Dials>, Query(failing): Query<Failing>) -> Json<Value> {
    dials.fail_next(failing.count, failing.status.unwrap_or(500), failing.retry_after);
    shown(&dials)
}

#[derive(Deserialize)]
struct Losing {
    count: usize,
}

async fn lose_next_answers(Held(dials): Held<Dials>, Query(Losing { count }): Query<Losing>) -> Json<Value> {
    dials.lose_next_answers(count);
    shown(&dials)
}

#[derive(Deserialize)]
struct Delay {
    milliseconds: u64,
}

async fn delay(Held(dials): Held<Dials>, Query(Delay { milliseconds }): Query<Delay>) -> Json<Value> {
    dials.delay(Duration::from_millis(milliseconds));
    shown(&dials)
}

/// `?mib=10`; without it what was uploaded.
#[derive(Deserialize)]
struct Size {
    mib: Option<u32>,
}

async fn blobs(Held(dials): Held<Dials>, Query(Size { mib }): Query<Size>) -> Json<Value> {
    dials.blob_mib(mib);
    shown(&dials)
}

async fn relative_downloads(Held(dials): Held<Dials>, Query(Switch { on }): Query<Switch>) -> Json<Value> {
    dials.relative_downloads(on);
    shown(&dials)
}

#[derive(Deserialize)]
struct Description {
    description: String,
}

/// A new token, as plain text; all that the user had before end.
async fn rotate(Held(dials): Held<Dials>) -> String {
    dials.rotate().token.expose_secret().to_owned()
}

/// A new token, beside what there is.
async fn mint(Held(dials): Held<Dials>, Query(Description { description }): Query<Description>) -> Json<Value> {
    let minted = dials.mint(&description);
    Json(json!({"emulated": true, "id": minted.id, "token": minted.token.expose_secret()}))
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

async fn revoke(Held(dials): Held<Dials>, Query(Id { id }): Query<Id>) -> Response {
    if dials.revoke(&id) { shown(&dials).into_response() } else { wrong("there is no token with this id") }
}

async fn revoke_all(Held(dials): Held<Dials>) -> Response {
    dials.revoke_all();
    shown(&dials).into_response()
}

#[derive(Deserialize)]
struct Filling {
    list: String,
    #[serde(default)]
    parent: String,
    count: usize,
}

async fn fill(Held(dials): Held<Dials>, Query(Filling { list, parent, count }): Query<Filling>) -> Response {
    if dials.fill(&list, &parent, count) < count {
        return wrong("list is none of those of 2021-11-17, or there is no room for so many");
    }
    shown(&dials).into_response()
}

async fn forget_calls(Held(dials): Held<Dials>) -> Response {
    dials.forget_calls();
    shown(&dials).into_response()
}
