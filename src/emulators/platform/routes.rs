//! Table of routes. A parameter in braces is read by [`ApiRequest::name`](super::request::ApiRequest::name).

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};

use super::{
    EmulatorState, account, lists, modules, registry_protocol, state_versions, token_routes as tokens, workspaces,
};

pub(super) fn routes() -> Router<EmulatorState> {
    Router::new()
        .route("/.well-known/terraform.json", get(account::discovery))
        .route("/_archivist/v1/object/{secret}", put(registry_protocol::upload).get(registry_protocol::blob))
        .nest("/api/registry/v1/modules", registry_routes())
        .route("/api/meta/ip-ranges", get(account::ip_ranges))
        .route("/api/state-versions/{version}/{file}", get(state_versions::redirect_to_archive))
        .nest("/api/v2", account_routes().merge(workspace_routes()).merge(token_routes()).merge(module_routes()))
        .merge(lists::routes())
        .layer(DefaultBodyLimit::disable())
}

fn registry_routes() -> Router<EmulatorState> {
    Router::new()
        .route("/", get(registry_protocol::list))
        .route("/search", get(registry_protocol::list))
        .route("/{namespace}/{name}/{provider}", get(registry_protocol::show))
        .route("/{namespace}/{name}/{provider}/versions", get(registry_protocol::versions))
        .route("/{namespace}/{name}/{provider}/download", get(registry_protocol::download_newest))
        .route("/{namespace}/{name}/{provider}/{version}", get(registry_protocol::show))
        .route("/{namespace}/{name}/{provider}/{version}/download", get(registry_protocol::download))
}

fn account_routes() -> Router<EmulatorState> {
    Router::new()
        .route("/ping", get(account::ping))
        .route("/account/details", get(account::details))
        .route("/organizations", get(account::organizations).post(account::create_organization))
        .route(
            "/organizations/{organization}",
            get(account::show_organization).patch(account::update_organization).delete(account::delete_organization),
        )
        .route("/organizations/{organization}/entitlement-set", get(account::entitlements))
        .route(
            "/emulated/bytes",
            get(registry_protocol::bytes).post(registry_protocol::discard_body).put(registry_protocol::discard_body),
        )
}

fn workspace_routes() -> Router<EmulatorState> {
    Router::new()
        .route("/organizations/{organization}/workspaces", get(workspaces::list).post(workspaces::create))
        .route(
            "/organizations/{organization}/workspaces/{name}",
            get(workspaces::show).patch(workspaces::update).delete(workspaces::remove),
        )
        .route("/organizations/{organization}/workspaces/{name}/actions/safe-delete", post(workspaces::safe_delete))
        .route("/workspaces/{parent}", get(workspaces::show).patch(workspaces::update).delete(workspaces::remove))
        .route("/workspaces/{parent}/actions/safe-delete", post(workspaces::safe_delete))
        .route("/workspaces/{parent}/actions/lock", post(workspaces::lock))
        .route("/workspaces/{parent}/actions/unlock", post(workspaces::unlock))
        .route("/workspaces/{parent}/actions/force-unlock", post(workspaces::force_unlock))
        .route(
            "/workspaces/{parent}/relationships/tags",
            get(workspaces::list_tags).post(workspaces::add_tags).delete(workspaces::remove_tags),
        )
        .route("/workspaces/{parent}/state-versions", post(state_versions::create))
        .route("/workspaces/{parent}/current-state-version", get(state_versions::show_current))
        .route("/workspaces/{parent}/current-state-version-outputs", get(state_versions::list_current_outputs))
        .route("/state-versions", get(state_versions::list))
        .route("/state-versions/{version}", get(state_versions::show))
        .route("/state-versions/{version}/download", get(state_versions::redirect_to_archive))
        .route("/state-versions/{version}/outputs", get(state_versions::list_outputs))
        .route("/state-version-outputs/{output}", get(state_versions::show_output))
}

fn token_routes() -> Router<EmulatorState> {
    Router::new()
        .route("/users/{user}/authentication-tokens", get(tokens::list_of_user).post(tokens::make_for_user))
        .route("/teams/{entry}/authentication-tokens", post(tokens::make_for_team))
        .route(
            "/teams/{entry}/authentication-token",
            get(tokens::show_team_token).post(tokens::create_team_token).delete(tokens::delete_team_token),
        )
        .route("/organizations/{organization}/team-tokens", get(tokens::list_of_teams))
        .route(
            "/organizations/{organization}/authentication-token",
            get(tokens::show_organization_token)
                .post(tokens::make_for_organization)
                .delete(tokens::delete_organization_token),
        )
        .route(
            "/agent-pools/{entry}/authentication-tokens",
            get(tokens::list_of_agent_pool).post(tokens::make_for_agent_pool),
        )
        .route("/authentication-tokens/{token}", get(tokens::show).delete(tokens::end))
}

fn module_routes() -> Router<EmulatorState> {
    let new = "/organizations/{organization}/registry-modules";
    let name = format!("{new}/{{registry}}/{{namespace}}/{{name}}");
    let old = "/registry-modules";
    let old_name = "/registry-modules/actions/delete/{organization}/{name}";
    Router::new()
        .route(new, get(modules::list).post(modules::create))
        .route(&format!("{new}/vcs"), post(modules::create_from_repository))
        .route(&name, axum::routing::delete(modules::remove))
        .route(&format!("{name}/{{provider}}"), get(modules::show).patch(modules::update).delete(modules::remove))
        .route(&format!("{name}/{{provider}}/version"), get(modules::show_version))
        .route(&format!("{name}/{{provider}}/versions"), post(modules::create_version))
        .route(&format!("{name}/{{provider}}/{{version}}"), get(modules::show_version).delete(modules::remove_version))
        .route(&format!("{old}/{{module}}"), get(modules::show_by_id))
        .route(&format!("{old}/{{organization}}/{{name}}/{{provider}}/commits"), get(modules::list_commits))
        // Routes replaced by the changelog entry of 2021-06-8.
        .route(old, post(modules::create_from_repository_of_token))
        .route(old_name, post(modules::remove))
        .route(&format!("{old_name}/{{provider}}"), post(modules::remove))
        .route(&format!("{old_name}/{{provider}}/{{version}}"), post(modules::remove_version))
        .route(&format!("{old}/{{organization}}/{{name}}/{{provider}}/versions"), post(modules::create_version))
        .route(&format!("{old}/show/{{organization}}/{{name}}/{{provider}}"), get(modules::show_legacy))
}
