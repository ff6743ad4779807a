//! Discovery, the account of the caller, and organizations with their entitlements.

use axum::response::IntoResponse as _;
use axum::response::Response;
use axum::{Json, http::StatusCode};
use serde_json::{Value, json};

use super::reply::{ApiError, ApiResult, created, document, no_content, ok};
use super::request::{ApiRequest, required};
use super::state::organization;
use super::tokens::TokenKind;

/// `/.well-known/terraform.json`. Paths, not URLs: one client appends them to its configured address.
pub(super) async fn discovery(_: ApiRequest) -> Response {
    Json(json!({
        "modules.v1": "/api/registry/v1/modules/", "state.v2": "/api/v2/", "tfe.v2": "/api/v2/",
        "tfe.v2.1": "/api/v2/", "tfe.v2.2": "/api/v2/", "emulated": "by keyward, from public documentation",
    }))
    .into_response()
}

pub(super) async fn ping(_: ApiRequest) -> Response {
    no_content()
}

/// Addresses that the platform connects from: none.
pub(super) async fn ip_ranges(_: ApiRequest) -> Response {
    Json(json!({"api": [], "notifications": [], "sentinel": [], "vcs": []})).into_response()
}

/// Account of the token's owner. Teams and organizations have a service user.
pub(super) async fn details(request: ApiRequest) -> ApiResult {
    let caller = request.caller()?;
    if matches!(caller.kind, TokenKind::AgentPool | TokenKind::AuditTrails) {
        return Err(ApiError::not_found());
    }
    let state = request.state();
    let (kind, service) = match caller.kind {
        TokenKind::User => ("users", false),
        TokenKind::Organization => ("organizations", true),
        _ => ("teams", true),
    };
    let name = match state.store.get(&caller.owner) {
        Some(owner) if service => format!("api-{}", owner.text("name")),
        Some(user) => user.text("username").to_owned(),
        None => return Err(ApiError::not_found()),
    };
    Ok(ok(&json!({
        "id": caller.acts_as(), "type": "users",
        "attributes": {
            "username": name, "is-service-account": service, "auth-method": "emulated",
            "email": format!("{name}@example.com"), "avatar-url": null, "v2-only": true, "unconfirmed-email": null,
            "two-factor": {"enabled": false, "verified": false},
            "permissions": {"can-create-organizations": !service, "can-change-email": false, "can-change-username": false},
        },
        "relationships": {
            // Changelog entry of 2023-11-17.
            "authenticated-resource": {"data": {"id": caller.owner, "type": kind}},
            "authentication-tokens": {"links": {"related": format!("/api/v2/users/{}/authentication-tokens", caller.acts_as())}},
        },
    })))
}

/// One of the ten lists of 2021-11-17. Its documentation says the same as that of the other nine, in other words.
pub(super) async fn organizations(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let caller = request.caller()?;
    let all = state.store.list("organizations", "");
    let all: Vec<Value> = all.iter().filter(|one| state.may_see(caller, &one.id)).map(|one| one.document()).collect();
    request.list(&all, state.settings.paging)
}

pub(super) async fn create_organization(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let name = required(&attributes, "name")?;
    let mut state = request.state();
    if request.caller()?.kind != TokenKind::User {
        return Err(ApiError::not_found());
    }
    if state.store.get(name).is_some() {
        return Err(ApiError::invalid("name", "Name has already been taken"));
    }
    let mut made_up = organization(name);
    made_up.attributes.extend(attributes.clone());
    let response = created(&made_up.document());
    state.store.put(made_up)?;
    Ok(response)
}

pub(super) async fn show_organization(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let name = request.organization(&state)?;
    Ok(ok(&state.store.find("organizations", &name)?.document()))
}

pub(super) async fn update_organization(request: ApiRequest) -> ApiResult {
    let mut attributes = request.attributes()?;
    // Names are ids here, so renaming is not emulated.
    attributes.remove("name");
    let mut state = request.state();
    let name = request.organization(&state)?;
    let mut changed = state.store.find("organizations", &name)?.clone();
    changed.attributes.extend(attributes);
    let response = ok(&changed.document());
    state.store.put(changed)?;
    Ok(response)
}

pub(super) async fn delete_organization(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let name = request.organization(&state)?;
    state.remove(&name);
    Ok(no_content())
}

/// Entitlements of an organization. Runs on the platform are not emulated, as `operations` says.
pub(super) async fn entitlements(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let name = request.organization(&state)?;
    let id = state.store.find("organizations", &name)?.text("external-id").to_owned();
    let body = json!({"data": {
        "id": id, "type": "entitlement-sets",
        "attributes": {
            "agents": true, "audit-logging": state.settings.edition.is_hosted(), "cost-estimation": false,
            "operations": false, "private-module-registry": true, "private-policy-agents": false, "private-vcs": false,
            "run-tasks": false, "self-serve-billing": false, "sentinel": false, "sso": false, "state-storage": true,
            "teams": true, "usage-reporting": false, "user-limit": null, "vcs-integrations": true,
        },
        "links": {"self": format!("/api/v2/entitlement-sets/{id}")},
    }});
    Ok(document(StatusCode::OK, &body))
}
