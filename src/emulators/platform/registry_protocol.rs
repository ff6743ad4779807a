//! Module registry protocol, by which Terraform downloads modules, and the blobs of modules and states.

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::blobs::{PATH, Purpose};
use super::modules::{KIND, VERSIONS};
use super::reply::{ApiError, ApiResult, no_content, redirect};
use super::request::ApiRequest;
use super::resources::Resource;
use super::state::State;
use super::{modules, state_versions};

/// Finds the module in the path; its namespace is the organization.
fn module<'a>(request: &ApiRequest, state: &'a State) -> Result<&'a Resource, ApiError> {
    let organization = state.find(request.caller()?, "organizations", request.name("namespace"))?;
    let name = request.name("name");
    let provider = request.name("provider");
    let is = |module: &&Resource| module.text("name") == name && module.text("provider") == provider;
    state.store.list(KIND, &organization.id).into_iter().find(is).ok_or_else(ApiError::not_found)
}

/// Returns the usable versions, newest last.
fn usable<'a>(state: &'a State, module: &Resource) -> Vec<&'a Resource> {
    let number = |version: &&Resource| -> Vec<u64> {
        version.text("version").split(['.', '-', '+']).map(|part| part.parse().unwrap_or_default()).collect()
    };
    let mut versions = state.store.list(VERSIONS, &module.id);
    versions.retain(|version| version.text("status") == "ok");
    versions.sort_by_key(number);
    versions
}

pub(super) async fn versions(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let module = module(&request, &state)?;
    let versions: Vec<Value> =
        usable(&state, module).iter().map(|version| json!({"version": version.text("version")})).collect();
    let source = source(module);
    Ok(Json(json!({"modules": [{"source": source, "versions": versions}]})).into_response())
}

fn source(module: &Resource) -> String {
    format!("{}/{}/{}", module.text("namespace"), module.text("name"), module.text("provider"))
}

fn described(state: &State, module: &Resource, version: &Resource) -> Value {
    let versions: Vec<&str> = usable(state, module).iter().map(|version| version.text("version")).collect();
    json!({
        "id": format!("{}/{}", source(module), version.text("version")), "owner": "", "downloads": 0, "verified": false,
        "namespace": module.text("namespace"), "name": module.text("name"), "provider": module.text("provider"),
        "version": version.text("version"), "description": "", "source": "", "published_at": version.text("created-at"),
        "versions": versions, "providers": [module.text("provider")], "submodules": [],
        "root": {"name": module.text("name"), "path": "", "readme": "", "empty": false, "inputs": [], "outputs": [], "dependencies": [], "resources": []},
    })
}

/// Finds a version, or the newest if the path names none.
fn version<'a>(request: &ApiRequest, state: &'a State, module: &Resource) -> Result<&'a Resource, ApiError> {
    let requested = request.name("version");
    let mut versions = usable(state, module).into_iter();
    let version = if requested.is_empty() {
        versions.next_back()
    } else {
        versions.find(|version| version.text("version") == requested)
    };
    version.ok_or_else(ApiError::not_found)
}

pub(super) async fn show(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let module = module(&request, &state)?;
    Ok(Json(described(&state, module, version(&request, &state, module)?)).into_response())
}

/// Lists the modules of all organizations that the caller may see; `?q=` searches their names.
pub(super) async fn list(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let caller = request.caller()?;
    let search = request.query("q").unwrap_or_default();
    let organizations = state.store.list("organizations", "");
    let modules = organizations.iter().filter(|one| state.may_see(caller, &one.id));
    let modules = modules.flat_map(|organization| state.store.list(KIND, &organization.id));
    let modules: Vec<Value> = modules
        .filter(|module| module.text("name").contains(search))
        .filter_map(|module| Some(described(&state, module, usable(&state, module).last()?)))
        .collect();
    let meta = json!({"limit": modules.len(), "current_offset": 0});
    Ok(Json(json!({"meta": meta, "modules": modules})).into_response())
}

/// Returns the archive's location in `X-Terraform-Get`.
pub(super) async fn download(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let version = version(&request, &state, module(&request, &state)?)?;
    let blob = version.hidden.get("archive-blob").ok_or_else(ApiError::not_found)?;
    let base = if state.settings.relative_downloads { "" } else { request.emulator.url.as_str() };
    let mut response = no_content();
    header(&mut response, HeaderName::from_static("x-terraform-get"), &format!("{base}{PATH}{blob}?archive=tar.gz"));
    Ok(response)
}

/// Redirects to the newest version.
pub(super) async fn download_newest(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let module = module(&request, &state)?;
    let number = version(&request, &state, module)?.text("version");
    Ok(redirect(&format!("/api/registry/v1/modules/{}/{number}/download", source(module))))
}

fn header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

pub(super) async fn upload(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let purpose = state.blobs.put(request.name("secret"), request.body.clone())?;
    match &purpose {
        Purpose::Archive(version) => modules::uploaded(&mut state, version)?,
        Purpose::State(_) | Purpose::JsonState(_) => state_versions::uploaded(&mut state, &purpose, &request.body)?,
    }
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn blob(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let bytes = state.blobs.get(request.name("secret")).ok_or_else(ApiError::not_found)?;
    Ok(match state.settings.blob_mib {
        Some(mib) => filler_response(mib),
        None => ([(CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
    })
}

/// `?mib=10`.
#[derive(Deserialize)]
pub(super) struct Size {
    mib: u32,
}

/// Streams a body of any size from constant memory. Only the emulation has this route.
pub(super) async fn bytes(Query(size): Query<Size>) -> Response {
    filler_response(size.mib)
}

fn filler_response(mib: u32) -> Response {
    static CHUNK: [u8; 64 * 1024] = [b'k'; 64 * 1024];
    let chunks = usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(16);
    let stream =
        futures_util::stream::iter((0..chunks).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from_static(&CHUNK))));
    let mut response = Body::from_stream(stream).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(u64::from(mib) * 1024 * 1024));
    response
}

/// Counts and discards a body. Only the emulation has this route.
pub(super) async fn discard_body(request: Request) -> ApiResult {
    let mut body = request.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body broke off"))?;
        received += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(Json(json!({ "received": received })).into_response())
}
