//! Versions of registry modules, and their archives.

use super::blobs::{PATH, Purpose};
use super::ids;
use super::modules::{KIND, VERSIONS, one};
use super::reply::{ApiError, ApiResult, created, no_content, ok};
use super::request::{ApiRequest, required};
use super::state::State;
use super::store::Resource;

/// Deletes a version, and its module with the last one.
pub(super) async fn remove_version(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let module = one(&request, &state)?.id.clone();
    let id = version(&state, &module, request.name("version"))?.id.clone();
    state.remove(&id);
    if state.store.list(VERSIONS, &module).is_empty() {
        state.remove(&module);
    }
    Ok(no_content())
}

fn version<'a>(state: &'a State, module: &str, version: &str) -> Result<&'a Resource, ApiError> {
    let mut versions = state.store.list(VERSIONS, module).into_iter();
    versions.find(|one| one.text("version") == version).ok_or_else(ApiError::not_found)
}

/// Only this response contains the upload URL of the archive.
pub(super) async fn create_version(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let number = required(&attributes, "version")?;
    let mut state = request.state();
    let module = one(&request, &state)?.id.clone();
    if version(&state, &module, number).is_ok() {
        return Err(ApiError::invalid("version", "Version has already been taken"));
    }
    let mut version = Resource::new(VERSIONS, "modver", &module);
    let blob = state.blobs.make(Purpose::Archive(version.id.clone()));
    version.set("version", number);
    version.set("status", "pending");
    version.set("source", "tfe-api");
    version.set("created-at", ids::timestamp(request.now.wall));
    version.set("updated-at", ids::timestamp(request.now.wall));
    version.set_relationship("registry-module", KIND, &module);
    version.hidden.insert("archive-blob", blob.clone());
    let mut document = version.document();
    document["links"]["upload"] = format!("{}{PATH}{blob}", request.emulator.url).into();
    state.store.put(version)?;
    Ok(created(&document))
}

/// Shows a version by its path, or by `?module_version=`.
pub(super) async fn show_version(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let number = request.query("module_version").unwrap_or_else(|| request.name("version"));
    Ok(ok(&version(&state, &one(&request, &state)?.id, number)?.document()))
}

/// Marks a version as usable after its upload.
pub(super) fn uploaded(state: &mut State, id: &str) -> Result<(), ApiError> {
    let mut version = state.store.find(VERSIONS, id)?.clone();
    version.set("status", "ok");
    let mut module = state.store.find(KIND, &version.parent)?.clone();
    module.set("status", "setup_complete");
    state.store.put(version)?;
    state.store.put(module)
}
