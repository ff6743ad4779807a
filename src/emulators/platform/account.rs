//! What a client asks first: what this is, who it is, and what its organization may do.

use axum::response::IntoResponse as _;
use axum::response::Response;
use axum::{Json, http::StatusCode};
use serde_json::{Value, json};

use super::reply::{Answer, Refusal, document, made, nothing, shown};
use super::request::{Asked, required};
use super::state::organization;
use super::tokens::Kind;

/// `/.well-known/terraform.json`. Paths, not URLs: one client puts them behind the address that it was given.
pub(super) async fn discovery(_: Asked) -> Response {
    Json(json!({
        "modules.v1": "/api/registry/v1/modules/", "state.v2": "/api/v2/", "tfe.v2": "/api/v2/",
        "tfe.v2.1": "/api/v2/", "tfe.v2.2": "/api/v2/", "emulated": "by keyward, from public documentation",
    }))
    .into_response()
}

pub(super) async fn ping(_: Asked) -> Response {
    nothing()
}

/// Addresses that the platform calls from: none.
pub(super) async fn ip_ranges(_: Asked) -> Response {
    Json(json!({"api": [], "notifications": [], "sentinel": [], "vcs": []})).into_response()
}

/// Whose token it is. Teams and organizations answer as a service user.
pub(super) async fn details(asked: Asked) -> Answer {
    let caller = asked.caller()?;
    if matches!(caller.kind, Kind::AgentPool | Kind::AuditTrails) {
        return Err(Refusal::not_found());
    }
    let state = asked.state();
    let (kind, service) = match caller.kind {
        Kind::User => ("users", false),
        Kind::Organization => ("organizations", true),
        _ => ("teams", true),
    };
    let name = match state.store.get(&caller.owner) {
        Some(owner) if service => format!("api-{}", owner.text("name")),
        Some(user) => user.text("username").to_owned(),
        None => return Err(Refusal::not_found()),
    };
    Ok(shown(&json!({
        "id": caller.acts_as(), "type": "users",
        "attributes": {
            "username": name, "is-service-account": service, "auth-method": "emulated",
            "email": format!("{name}@example.com"), "avatar-url": null, "v2-only": true, "unconfirmed-email": null,
            "two-factor": {"enabled": false, "verified": false},
            "permissions": {"can-create-organizations": !service, "can-change-email": false, "can-change-username": false},
        },
        "relationships": {
            // The entry of 2023-11-17.
            "authenticated-resource": {"data": {"id": caller.owner, "type": kind}},
            "authentication-tokens": {"links": {"related": format!("/api/v2/users/{}/authentication-tokens", caller.acts_as())}},
        },
    })))
}

/// One of the ten lists of 2021-11-17. Its public page says what the other nine say in other words.
pub(super) async fn organizations(asked: Asked) -> Answer {
    let state = asked.state();
    let caller = asked.caller()?;
    let all = state.store.list("organizations", "");
    let all: Vec<Value> = all.iter().filter(|one| state.may_see(caller, &one.id)).map(|one| one.document()).collect();
    asked.list(&all, state.turned.paging)
}

pub(super) async fn create_organization(asked: Asked) -> Answer {
    let attributes = asked.attributes()?;
    let name = required(&attributes, "name")?;
    let mut state = asked.state();
    if asked.caller()?.kind != Kind::User {
        return Err(Refusal::not_found());
    }
    if state.store.get(name).is_some() {
        return Err(Refusal::invalid("name", "Name has already been taken"));
    }
    let mut made_up = organization(name);
    made_up.attributes.extend(attributes.clone());
    let answer = made(&made_up.document());
    state.store.put(made_up)?;
    Ok(answer)
}

pub(super) async fn show_organization(asked: Asked) -> Answer {
    let state = asked.state();
    let name = asked.organization(&state)?;
    Ok(shown(&state.store.find("organizations", &name)?.document()))
}

pub(super) async fn update_organization(asked: Asked) -> Answer {
    let mut attributes = asked.attributes()?;
    // Names are ids here: what a renaming would do to them is not emulated.
    attributes.remove("name");
    let mut state = asked.state();
    let name = asked.organization(&state)?;
    let mut changed = state.store.find("organizations", &name)?.clone();
    changed.attributes.extend(attributes);
    let answer = shown(&changed.document());
    state.store.put(changed)?;
    Ok(answer)
}

pub(super) async fn delete_organization(asked: Asked) -> Answer {
    let mut state = asked.state();
    let name = asked.organization(&state)?;
    state.remove(&name);
    Ok(nothing())
}

/// What the organization may do. Runs on the platform are not emulated, which `operations` says.
pub(super) async fn entitlements(asked: Asked) -> Answer {
    let state = asked.state();
    let name = asked.organization(&state)?;
    let id = state.store.find("organizations", &name)?.text("external-id").to_owned();
    let body = json!({"data": {
        "id": id, "type": "entitlement-sets",
        "attributes": {
            "agents": true, "audit-logging": state.turned.edition.is_hosted(), "cost-estimation": false,
            "operations": false, "private-module-registry": true, "private-policy-agents": false, "private-vcs": false,
            "run-tasks": false, "self-serve-billing": false, "sentinel": false, "sso": false, "state-storage": true,
            "teams": true, "usage-reporting": false, "user-limit": null, "vcs-integrations": true,
        },
        "links": {"self": format!("/api/v2/entitlement-sets/{id}")},
    }});
    Ok(document(StatusCode::OK, &body))
}
