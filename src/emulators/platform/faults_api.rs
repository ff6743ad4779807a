//! Fault injection over HTTP, for people and scripts. Every request needs the key in `X-Faults-Key`.

use std::time::Duration;

use axum::extract::{Query, State as AxumState};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call_log::PresentedToken;
use super::edition::Edition;
use super::faults::{FaultInjector, NEW_REGISTRY_ROUTES, OLD_REGISTRY_ROUTES};
use super::page::Paging;
use crate::control_listener::{SwitchQuery, require_key};

type Faults = AxumState<FaultInjector>;

/// Creates the routes: `GET /faults` returns the current faults; each `POST` sets one and returns the same.
pub(super) fn routes(faults: FaultInjector, key: SecretString) -> Router {
    let routes = Router::new()
        .route("/faults", get(show))
        .route("/faults/calls", get(calls))
        .route("/faults/edition", post(edition))
        .route("/faults/paging", post(paging))
        .route("/faults/limit", post(limit))
        .route("/faults/old-registry-routes", post(old_registry_routes))
        .route("/faults/new-registry-routes", post(new_registry_routes))
        .route("/faults/fail-next", post(fail_next))
        .route("/faults/lose-next-responses", post(lose_next_responses))
        .route("/faults/delay", post(delay))
        .route("/faults/blobs", post(blobs))
        .route("/faults/relative-downloads", post(relative_downloads))
        .route("/faults/mint", post(mint))
        .route("/faults/rotate", post(rotate))
        .route("/faults/revoke", post(revoke))
        .route("/faults/revoke-all", post(revoke_all))
        .route("/faults/fill", post(fill))
        .route("/faults/forget-calls", post(forget_calls))
        .with_state(faults);
    require_key(routes, key)
}

async fn show(AxumState(faults): Faults) -> Json<Value> {
    ok(&faults)
}

fn ok(faults: &FaultInjector) -> Json<Value> {
    let state = faults.state();
    let release = match &state.settings.edition {
        Edition::Hosted => None,
        Edition::SelfManaged { release } => Some(release),
    };
    Json(json!({
        "emulated": true, "requests": state.call_log.total(), "tokens": state.tokens.list(|_| true).len(), "self_managed_release": release,
        "paging": format!("{:?}", state.settings.paging), "requests_per_second": state.settings.limit,
        "removed_routes": state.settings.removed, "failing": state.settings.failing.len(),
        "losing": state.settings.lost_responses_left, "delay_milliseconds": state.settings.delay.as_millis(), "blob_mib": state.settings.blob_mib,
    }))
}

/// Returns the last requests with token id and status.
async fn calls(AxumState(faults): Faults) -> Json<Value> {
    let calls = faults.calls().into_iter().map(|call| {
        let token = match &call.token {
            PresentedToken::Absent => "absent",
            PresentedToken::Unknown => "unknown",
            PresentedToken::Known(id) => id,
        };
        json!({
            "method": call.method.as_str(), "route": call.route, "path": call.path, "token": token,
            "status": call.status, "agent": call.agent,
        })
    });
    Json(calls.collect())
}

/// `?release=v202207-1`; without it HCP Terraform.
#[derive(Deserialize)]
struct Release {
    release: Option<String>,
}

async fn edition(AxumState(faults): Faults, Query(Release { release }): Query<Release>) -> Json<Value> {
    faults.edition(release.map_or(Edition::Hosted, |release| Edition::SelfManaged { release }));
    ok(&faults)
}

/// `?mode=always`.
#[derive(Deserialize)]
struct Mode {
    mode: String,
}

async fn paging(AxumState(faults): Faults, Query(Mode { mode }): Query<Mode>) -> Response {
    let paging = match mode.as_str() {
        "opt-in" => Paging::OptIn,
        "always" => Paging::Always,
        "never" => Paging::Never,
        "looping" => Paging::Looping,
        _ => return bad_request("mode is one of opt-in, always, never, looping"),
    };
    faults.paging(paging);
    ok(&faults).into_response()
}

fn bad_request(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({"errors": [why]}))).into_response()
}

/// `?per_second=30`; without it no limit.
#[derive(Deserialize)]
struct Limit {
    per_second: Option<u32>,
}

async fn limit(AxumState(faults): Faults, Query(Limit { per_second }): Query<Limit>) -> Json<Value> {
    faults.limit(per_second);
    ok(&faults)
}

async fn old_registry_routes(AxumState(faults): Faults, Query(SwitchQuery { on }): Query<SwitchQuery>) -> Json<Value> {
    faults.routes(OLD_REGISTRY_ROUTES, on);
    ok(&faults)
}

async fn new_registry_routes(AxumState(faults): Faults, Query(SwitchQuery { on }): Query<SwitchQuery>) -> Json<Value> {
    faults.routes(NEW_REGISTRY_ROUTES, on);
    ok(&faults)
}

#[derive(Deserialize)]
struct FailNextQuery {
    count: usize,
    status: Option<u16>,
    retry_after: Option<u64>,
}

async fn fail_next(AxumState(faults): Faults, Query(failing): Query<FailNextQuery>) -> Json<Value> {
    faults.fail_next(failing.count, failing.status.unwrap_or(500), failing.retry_after);
    ok(&faults)
}

#[derive(Deserialize)]
struct CountQuery {
    count: usize,
}

async fn lose_next_responses(AxumState(faults): Faults, Query(CountQuery { count }): Query<CountQuery>) -> Json<Value> {
    faults.lose_next_responses(count);
    ok(&faults)
}

#[derive(Deserialize)]
struct DelayQuery {
    milliseconds: u64,
}

async fn delay(AxumState(faults): Faults, Query(DelayQuery { milliseconds }): Query<DelayQuery>) -> Json<Value> {
    faults.delay(Duration::from_millis(milliseconds));
    ok(&faults)
}

/// `?mib=10`; without it the uploaded bytes.
#[derive(Deserialize)]
struct SizeQuery {
    mib: Option<u32>,
}

async fn blobs(AxumState(faults): Faults, Query(SizeQuery { mib }): Query<SizeQuery>) -> Json<Value> {
    faults.blob_mib(mib);
    ok(&faults)
}

async fn relative_downloads(AxumState(faults): Faults, Query(SwitchQuery { on }): Query<SwitchQuery>) -> Json<Value> {
    faults.relative_downloads(on);
    ok(&faults)
}

#[derive(Deserialize)]
struct DescriptionQuery {
    description: String,
}

/// Returns a new token as plain text; all previous ones of the user are revoked.
async fn rotate(AxumState(faults): Faults) -> String {
    faults.rotate().token.expose_secret().to_owned()
}

/// Returns a new token and keeps the others.
async fn mint(
    AxumState(faults): Faults,
    Query(DescriptionQuery { description }): Query<DescriptionQuery>,
) -> Json<Value> {
    let minted = faults.mint(&description);
    Json(json!({"emulated": true, "id": minted.id, "token": minted.token.expose_secret()}))
}

#[derive(Deserialize)]
struct IdQuery {
    id: String,
}

async fn revoke(AxumState(faults): Faults, Query(IdQuery { id }): Query<IdQuery>) -> Response {
    if faults.revoke(&id) { ok(&faults).into_response() } else { bad_request("there is no token with this id") }
}

async fn revoke_all(AxumState(faults): Faults) -> Response {
    faults.revoke_all();
    ok(&faults).into_response()
}

#[derive(Deserialize)]
struct FillQuery {
    list: String,
    #[serde(default)]
    parent: String,
    count: usize,
}

async fn fill(AxumState(faults): Faults, Query(FillQuery { list, parent, count }): Query<FillQuery>) -> Response {
    if faults.fill(&list, &parent, count) < count {
        return bad_request("list is none of those of 2021-11-17, or there is no room for so many");
    }
    ok(&faults).into_response()
}

async fn forget_calls(AxumState(faults): Faults) -> Response {
    faults.forget_calls();
    ok(&faults).into_response()
}
