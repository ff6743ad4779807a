//! Workspaces, their locks and their tags. Plans and applies run in the client's Terraform, never here.

use serde_json::{Map, Value, json};

use super::ids;
use super::page::Paging;
use super::reply::{ApiError, ApiResult, created, no_content, ok};
use super::request::{ApiRequest, required};
use super::resources::Resource;
use super::state::State;
use super::workspace_attributes::{change_tags, new, set_attributes, tag_names};

/// Finds a workspace by its id, or by the organization and name in the path.
pub(super) fn find(request: &ApiRequest, state: &State) -> Result<Resource, ApiError> {
    if request.name("organization").is_empty() {
        return state.find(request.caller()?, "workspaces", request.name("parent")).cloned();
    }
    let organization = request.organization(state)?;
    let workspace = state.store.find_by_name("workspaces", &organization, request.name("name"));
    workspace.cloned().ok_or_else(ApiError::not_found)
}

/// Lists an organization's workspaces, with the platform's search and tag parameters.
pub(super) async fn list(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let organization = request.organization(&state)?;
    let tags = |name: &str| -> Vec<&str> {
        request.query(name).map(|tags| tags.split(',').filter(|tag| !tag.is_empty()).collect()).unwrap_or_default()
    };
    let with = tags("search[tags]");
    let without = tags("search[exclude-tags]");
    let name = request.query("search[name]").unwrap_or_default();
    let has = |workspace: &Resource, tag: &&str| tag_names(workspace).iter().any(|name| name == tag);
    let mut all: Vec<&Resource> = state
        .store
        .list("workspaces", &organization)
        .into_iter()
        .filter(|workspace| workspace.text("name").contains(name))
        .filter(|workspace| with.iter().all(|tag| has(workspace, tag)))
        .filter(|workspace| !without.iter().any(|tag| has(workspace, tag)))
        .collect();
    // Changelog entry of 2023-03-30.
    match request.query("sort") {
        Some("-name") => all.sort_by(|left, right| right.text("name").cmp(left.text("name"))),
        _ => all.sort_by(|left, right| left.text("name").cmp(right.text("name"))),
    }
    let all: Vec<Value> = all.into_iter().map(Resource::document).collect();
    request.list(&all, Paging::Always)
}

pub(super) async fn create(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let mut state = request.state();
    let organization = request.organization(&state)?;
    let mut workspace = new(&organization, &ids::timestamp(request.now.wall));
    validate_name(&state, &workspace, &attributes)?;
    set_attributes(&mut workspace, attributes);
    let sent = request.parse_body()?;
    if let Some(tags) = sent.pointer("/data/relationships/tags/data").and_then(Value::as_array) {
        change_tags(&mut workspace, tags, true);
    }
    let response = created(&workspace.document());
    state.store.put(workspace)?;
    Ok(response)
}

/// Checks the name that a workspace is to have: not blank, of allowed characters, and of no other workspace.
fn validate_name(state: &State, workspace: &Resource, attributes: &Map<String, Value>) -> Result<(), ApiError> {
    let name = required(attributes, "name")?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(ApiError::invalid("name", "can only include letters, numbers, -, and _"));
    }
    match state.store.find_by_name("workspaces", &workspace.parent, name) {
        Some(other) if other.id != workspace.id => Err(ApiError::invalid("name", "Name has already been taken")),
        _ => Ok(()),
    }
}

pub(super) async fn show(request: ApiRequest) -> ApiResult {
    let state = request.state();
    Ok(ok(&find(&request, &state)?.document()))
}

pub(super) async fn update(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let mut state = request.state();
    let mut workspace = find(&request, &state)?;
    if attributes.contains_key("name") {
        validate_name(&state, &workspace, &attributes)?;
    }
    set_attributes(&mut workspace, attributes);
    workspace.set("updated-at", ids::timestamp(request.now.wall));
    let response = ok(&workspace.document());
    state.store.put(workspace)?;
    Ok(response)
}

pub(super) async fn remove(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let id = find(&request, &state)?.id;
    state.remove(&id);
    Ok(no_content())
}

/// Deletes a workspace unless it manages resources: changelog entries of 2022-10-17 and 2022-12-22.
pub(super) async fn safe_delete(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let workspace = find(&request, &state)?;
    if workspace.attributes.get("resource-count").and_then(Value::as_u64).unwrap_or_default() > 0 {
        return Err(ApiError::conflict("Workspace is managing resources and cannot be safely deleted"));
    }
    state.remove(&workspace.id);
    Ok(no_content())
}

pub(super) async fn lock(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let mut workspace = find(&request, &state)?;
    if is_locked(&workspace) {
        return Err(ApiError::conflict("Unable to lock workspace. The workspace is already locked."));
    }
    let holder = request.caller()?.acts_as();
    workspace.set("locked", true);
    workspace.set_relationship("locked-by", "users", &holder);
    let response = ok(&workspace.document());
    state.store.put(workspace)?;
    Ok(response)
}

pub(super) async fn unlock(request: ApiRequest) -> ApiResult {
    release(&request, false)
}

pub(super) async fn force_unlock(request: ApiRequest) -> ApiResult {
    release(&request, true)
}

fn release(request: &ApiRequest, whoever_holds_it: bool) -> ApiResult {
    let mut state = request.state();
    let mut workspace = find(request, &state)?;
    if !is_locked(&workspace) {
        return Err(ApiError::conflict("Unable to unlock workspace. The workspace is already unlocked."));
    }
    if !whoever_holds_it && !is_locked_by(&workspace, &request.caller()?.acts_as()) {
        return Err(ApiError::conflict("Unable to unlock workspace. The workspace is locked by another user."));
    }
    workspace.set("locked", false);
    workspace.relationships.insert("locked-by".to_owned(), json!({"data": null}));
    let response = ok(&workspace.document());
    state.store.put(workspace)?;
    Ok(response)
}

pub(super) fn is_locked(workspace: &Resource) -> bool {
    workspace.attributes.get("locked") == Some(&Value::Bool(true))
}

/// Returns true if this user holds the lock, with whatever token.
pub(super) fn is_locked_by(workspace: &Resource, user: &str) -> bool {
    let holder = workspace.relationships.get("locked-by").and_then(|lock| lock.pointer("/data/id"));
    is_locked(workspace) && holder.and_then(Value::as_str) == Some(user)
}

pub(super) async fn list_tags(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let workspace = find(&request, &state)?;
    let names = tag_names(&workspace)
        .into_iter()
        .map(|name| json!({"id": format!("tag-{name}"), "type": "tags", "attributes": {"name": name}}));
    request.list(&names.collect::<Vec<_>>(), Paging::Always)
}

pub(super) async fn add_tags(request: ApiRequest) -> ApiResult {
    tag(&request, true)
}

pub(super) async fn remove_tags(request: ApiRequest) -> ApiResult {
    tag(&request, false)
}

fn tag(request: &ApiRequest, add: bool) -> ApiResult {
    let sent = request.parse_body()?;
    let tags = sent.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut state = request.state();
    let mut workspace = find(request, &state)?;
    change_tags(&mut workspace, &tags, add);
    state.store.put(workspace)?;
    Ok(no_content())
}
