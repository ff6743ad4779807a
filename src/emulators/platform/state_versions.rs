//! State versions: created in a locked workspace, uploaded without a token, read back with their outputs.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::blobs::{PATH, Purpose};
use super::ids;
use super::page::Paging;
use super::reply::{ApiError, ApiResult, created, document, ok, redirect};
use super::request::{ApiRequest, text};
use super::resources::Resource;
use super::state::State;
use super::workspaces::is_locked_by;

const KIND: &str = "state-versions";
const OUTPUTS: &str = "state-version-outputs";

/// Last path segments of the redirects to a state and to its stable JSON form.
const HOSTED_STATE: &str = "hosted_state";
const HOSTED_JSON_STATE: &str = "hosted_json_state";

/// Creates a version. Its state is in the request, or is uploaded to the URLs in the response.
pub(super) async fn create(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let mut state = request.state();
    let caller = request.caller()?;
    let workspace = state.find(caller, "workspaces", request.name("parent"))?;
    if !is_locked_by(workspace, &caller.acts_as()) {
        return Err(ApiError::conflict("The workspace must be locked by you to create a new state version."));
    }
    let Some(serial) = attributes.get("serial").and_then(Value::as_u64) else {
        return Err(ApiError::invalid("serial", "can't be blank"));
    };
    if text(&attributes, "md5").is_none() {
        return Err(ApiError::invalid("md5", "can't be blank"));
    }
    let workspace = workspace.id.clone();
    let forced = attributes.get("force") == Some(&Value::Bool(true));
    if let Some(current) = current(&state, &workspace).filter(|_| !forced) {
        check_continuity(current, serial, text(&attributes, "lineage"))?;
    }
    let inline = match text(&attributes, "state") {
        None => None,
        Some(state) => Some(STANDARD.decode(state).map_err(|_| ApiError::invalid("state", "is not base64"))?),
    };
    let mut version = new(&mut state, &request, &workspace, &attributes, serial);
    let secret = version.hidden.get("state-blob").cloned().unwrap_or_default();
    if inline.is_none() {
        // Only in this response: an upload cannot be repeated.
        for (name, blob) in [("hosted-state-upload-url", "state-blob"), ("hosted-json-state-upload-url", "json-blob")] {
            let secret = version.hidden.get(blob).cloned().unwrap_or_default();
            version.set(name, format!("{}{PATH}{secret}", request.emulator.url));
        }
    }
    let mut response = created(&version.document());
    for name in ["hosted-state-upload-url", "hosted-json-state-upload-url"] {
        version.attributes.remove(name);
    }
    let id = version.id.clone();
    state.store.put(version)?;
    if let Some(inline) = inline {
        let inline = Bytes::from(inline);
        state.blobs.put(&secret, inline.clone())?;
        uploaded(&mut state, &Purpose::State(id.clone()), &inline)?;
        response = created(&state.store.find(KIND, &id)?.document());
    }
    Ok(response)
}

/// Checks that serial and lineage continue the current version.
fn check_continuity(current: &Resource, serial: u64, lineage: Option<&str>) -> Result<(), ApiError> {
    let current_serial = current.attributes.get("serial").and_then(Value::as_u64).unwrap_or_default();
    let origin = current.hidden.get("lineage").map_or("", String::as_str);
    if lineage.is_some_and(|lineage| !origin.is_empty() && lineage != origin) {
        return Err(ApiError::conflict("The state's lineage is not that of the workspace's current state."));
    }
    if serial <= current_serial {
        return Err(ApiError::conflict(
            "The state's serial is not greater than that of the workspace's current state.",
        ));
    }
    Ok(())
}

fn new(
    state: &mut State,
    request: &ApiRequest,
    workspace: &str,
    attributes: &Map<String, Value>,
    serial: u64,
) -> Resource {
    let mut version = Resource::new(KIND, "sv", workspace);
    let blob = state.blobs.make(Purpose::State(version.id.clone()));
    let json_blob = state.blobs.make(Purpose::JsonState(version.id.clone()));
    version.set("created-at", ids::timestamp(request.now.wall));
    version.set("serial", serial);
    version.set("size", 0);
    version.set("status", "pending");
    version.set("state-version", 4);
    version.set("resources-processed", false);
    // Changelog entry of 2023-09-25.
    version.set("intermediate", attributes.get("intermediate") == Some(&Value::Bool(true)));
    for (name, file, blob) in [
        ("hosted-state-download-url", HOSTED_STATE, &blob),
        ("hosted-json-state-download-url", HOSTED_JSON_STATE, &json_blob),
    ] {
        let path = if state.settings.edition.guards_downloads() {
            format!("/api/state-versions/{}/{file}", version.id)
        } else {
            format!("{PATH}{blob}")
        };
        version.set(name, format!("{}{path}", request.emulator.url));
    }
    version.set_relationship("workspace", "workspaces", workspace);
    version.links.insert("self".to_owned(), format!("/api/v2/state-versions/{}", version.id).into());
    version.hidden.insert("lineage", text(attributes, "lineage").unwrap_or_default().to_owned());
    version.hidden.insert("state-blob", blob);
    version.hidden.insert("json-blob", json_blob);
    version
}

/// Finalizes a version after its upload, and extracts its outputs.
pub(super) fn uploaded(state: &mut State, purpose: &Purpose, bytes: &Bytes) -> Result<(), ApiError> {
    let Purpose::State(id) = purpose else { return Ok(()) };
    let content: Value = serde_json::from_slice(bytes).map_err(|_| ApiError::bad_request("the state is not JSON"))?;
    let mut version = state.store.find(KIND, id)?.clone();
    version.set("status", "finalized");
    version.set("resources-processed", true);
    version.set("size", bytes.len());
    version.set("terraform-version", content.get("terraform_version").cloned().unwrap_or_default());
    let resources = content.get("resources").and_then(Value::as_array).map_or(0, Vec::len);
    let mut workspace = state.store.find("workspaces", &version.parent)?.clone();
    workspace.set("resource-count", resources);
    workspace.set_relationship("current-state-version", KIND, id);
    let mut outputs = Vec::new();
    for (name, output) in content.get("outputs").and_then(Value::as_object).into_iter().flatten() {
        let mut resource = Resource::new(OUTPUTS, "wsout", id);
        let kind = output.get("type").cloned().unwrap_or_default();
        resource.set("name", name.as_str());
        resource.set("sensitive", output.get("sensitive") == Some(&Value::Bool(true)));
        resource.set("type", if kind.is_array() { "array".into() } else { kind.clone() });
        resource.set("detailed-type", kind);
        resource.set("value", output.get("value").cloned().unwrap_or_default());
        outputs.push(json!({"id": resource.id, "type": OUTPUTS}));
        state.store.put(resource)?;
    }
    version.relationships.insert("outputs".to_owned(), json!({ "data": outputs }));
    state.store.put(version)?;
    state.store.put(workspace)
}

/// Returns the newest uploaded version.
fn current<'a>(state: &'a State, workspace: &str) -> Option<&'a Resource> {
    state.store.list(KIND, workspace).into_iter().rfind(|version| version.text("status") == "finalized")
}

fn current_of(request: &ApiRequest, state: &State) -> Result<Resource, ApiError> {
    let workspace = state.find(request.caller()?, "workspaces", request.name("parent"))?;
    current(state, &workspace.id).cloned().ok_or_else(ApiError::not_found)
}

/// Lists never show sensitive values.
fn outputs(state: &State, version: &str) -> Vec<Value> {
    let outputs = state.store.list(OUTPUTS, version).into_iter().map(|output| {
        let mut document = output.document();
        if output.attributes.get("sensitive") == Some(&Value::Bool(true)) {
            document["attributes"]["value"] = Value::Null;
        }
        document
    });
    outputs.collect()
}

fn with_included(request: &ApiRequest, state: &State, version: &Resource) -> Response {
    if request.query("include").is_some_and(|include| include.split(',').any(|part| part == "outputs")) {
        let body = json!({"data": version.document(), "included": outputs(state, &version.id)});
        return document(StatusCode::OK, &body);
    }
    ok(&version.document())
}

pub(super) async fn show_current(request: ApiRequest) -> ApiResult {
    let state = request.state();
    Ok(with_included(&request, &state, &current_of(&request, &state)?))
}

pub(super) async fn show(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let version = state.find(request.caller()?, KIND, request.name("version"))?;
    Ok(with_included(&request, &state, version))
}

/// Redirects to a version's state in the archive: `/api/state-versions/ID/hosted_state`, `.../hosted_json_state`, and
/// `/api/v2/state-versions/ID/download`.
pub(super) async fn redirect_to_archive(request: ApiRequest) -> ApiResult {
    let blob = match request.name("file") {
        "" | HOSTED_STATE => "state-blob",
        HOSTED_JSON_STATE => "json-blob",
        _ => return Err(ApiError::not_found()),
    };
    let state = request.state();
    let version = state.find(request.caller()?, KIND, request.name("version"))?;
    let secret = version.hidden.get(blob).ok_or_else(ApiError::not_found)?;
    Ok(redirect(&format!("{}{PATH}{secret}", request.emulator.url)))
}

/// Outputs of a version: changelog entry of 2021-08-18.
pub(super) async fn list_outputs(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let id = state.find(request.caller()?, KIND, request.name("version"))?.id.clone();
    request.list(&outputs(&state, &id), Paging::Always)
}

pub(super) async fn list_current_outputs(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let version = current_of(&request, &state)?;
    request.list(&outputs(&state, &version.id), Paging::Always)
}

/// Shows one output with its value, sensitive or not.
pub(super) async fn show_output(request: ApiRequest) -> ApiResult {
    let state = request.state();
    Ok(ok(&state.find(request.caller()?, OUTPUTS, request.name("output"))?.document()))
}

/// Lists versions of `filter[workspace][name]` in `filter[organization][name]`, newest first.
pub(super) async fn list(request: ApiRequest) -> ApiResult {
    let filter = |name: &str| request.query(&format!("filter[{name}][name]")).unwrap_or_default();
    let state = request.state();
    let organization = state.find(request.caller()?, "organizations", filter("organization"))?;
    let workspace = state
        .store
        .find_by_name("workspaces", &organization.id, filter("workspace"))
        .ok_or_else(ApiError::not_found)?;
    let versions: Vec<Value> =
        state.store.list(KIND, &workspace.id).into_iter().rev().map(Resource::document).collect();
    request.list(&versions, Paging::Always)
}
