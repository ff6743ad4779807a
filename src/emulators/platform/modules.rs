//! Private registry modules, by the routes of 2021-06-8 and by those that they replaced; and their versions and archives.

use serde_json::{Map, Value, json};

use super::blobs::{PATH, Purpose};
use super::ids;
use super::page::Paging;
use super::reply::{ApiError, ApiResult, created, no_content, ok};
use super::request::{ApiRequest, required, text};
use super::resources::Resource;
use super::state::State;

pub(super) const KIND: &str = "registry-modules";
pub(super) const VERSIONS: &str = "registry-module-versions";

/// Finds the modules of a path: one, or those of all providers if it names none. The old routes name neither registry
/// nor namespace and mean the private registry and the organization.
fn find_module<'a>(request: &ApiRequest, state: &'a State) -> Result<Vec<&'a Resource>, ApiError> {
    let organization = request.organization(state)?;
    let (registry, namespace) = match (request.name("registry"), request.name("namespace")) {
        ("", _) => ("private", organization.as_str()),
        names => names,
    };
    if registry == "public" && !state.settings.edition.is_hosted() {
        return Err(ApiError::not_found());
    }
    let name = request.name("name");
    let provider = request.name("provider");
    let modules: Vec<&Resource> = state
        .store
        .list(KIND, &organization)
        .into_iter()
        .filter(|module| module.text("registry-name") == registry && module.text("namespace") == namespace)
        .filter(|module| module.text("name") == name)
        .filter(|module| provider.is_empty() || module.text("provider") == provider)
        .collect();
    if modules.is_empty() { Err(ApiError::not_found()) } else { Ok(modules) }
}

pub(super) fn one<'a>(request: &ApiRequest, state: &'a State) -> Result<&'a Resource, ApiError> {
    find_module(request, state)?.first().copied().ok_or_else(ApiError::not_found)
}

/// Renders a module with the state of its versions.
fn document(state: &State, module: &Resource) -> Value {
    let versions = state.store.list(VERSIONS, &module.id).into_iter();
    let statuses: Vec<Value> =
        versions.map(|version| json!({"version": version.text("version"), "status": version.text("status")})).collect();
    let mut document = module.document();
    document["attributes"]["version-statuses"] = statuses.into();
    document
}

pub(super) async fn list(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let organization = request.organization(&state)?;
    let is = |module: &Resource, attribute: &str, filter: &str| {
        request.query(filter).is_none_or(|value| module.text(attribute) == value)
    };
    let modules: Vec<Value> = state
        .store
        .list(KIND, &organization)
        .into_iter()
        .filter(|module| module.text("name").contains(request.query("q").unwrap_or_default()))
        .filter(|module| is(module, "provider", "filter[provider]"))
        .filter(|module| is(module, "registry-name", "filter[registry_name]"))
        .map(|module| document(&state, module))
        .collect();
    request.list(&modules, Paging::Always)
}

pub(super) async fn create(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let name = required(&attributes, "name")?;
    let provider = required(&attributes, "provider")?;
    let mut state = request.state();
    let organization = request.organization(&state)?;
    let registry = text(&attributes, "registry-name").unwrap_or("private");
    if registry == "public" && !state.settings.edition.is_hosted() {
        return Err(ApiError::not_found());
    }
    let namespace = text(&attributes, "namespace").filter(|_| registry == "public").unwrap_or(&organization);
    let module = new(&request, &organization, [registry, namespace, name, provider]);
    add(&mut state, module)
}

fn new(request: &ApiRequest, organization: &str, [registry, namespace, name, provider]: [&str; 4]) -> Resource {
    let mut module = Resource::new(KIND, "mod", organization);
    module.set("name", name);
    module.set("provider", provider);
    module.set("namespace", namespace);
    module.set("registry-name", registry);
    module.set("no-code", false);
    module.set("publishing-mechanism", "non_vcs");
    module.set("status", "pending");
    module.set("permissions", json!({"can-delete": true, "can-resync": true, "can-retry": true}));
    module.set("created-at", ids::timestamp(request.now.wall));
    module.set("updated-at", ids::timestamp(request.now.wall));
    module.set_relationship("organization", "organizations", organization);
    let path =
        format!("/api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}");
    module.links.insert("self".to_owned(), path.into());
    module
}

fn add(state: &mut State, module: Resource) -> ApiResult {
    let is_duplicate = |other: &&Resource| {
        ["registry-name", "namespace", "name", "provider"].iter().all(|name| other.text(name) == module.text(name))
    };
    if state.store.list(KIND, &module.parent).iter().any(is_duplicate) {
        return Err(ApiError::invalid("name", "Name has already been taken"));
    }
    let response = created(&document(state, &module));
    state.store.put(module)?;
    Ok(response)
}

/// Creates a module from a repository named `terraform-PROVIDER-NAME`.
pub(super) async fn create_from_repository(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let organization = request.organization(&state)?;
    let (repository, _) = repository(&request, &state)?;
    add_repository(&request, &mut state, &organization, &repository)
}

/// Old route without an organization: uses that of the OAuth token.
pub(super) async fn create_from_repository_of_token(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let (repository, organization) = repository(&request, &state)?;
    add_repository(&request, &mut state, &organization, &repository)
}

fn repository(request: &ApiRequest, state: &State) -> Result<(Map<String, Value>, String), ApiError> {
    let mut attributes = request.attributes()?;
    let Some(Value::Object(repository)) = attributes.remove("vcs-repo") else {
        return Err(ApiError::invalid("vcs-repo", "can't be blank"));
    };
    let token = required(&repository, "oauth-token-id")?;
    let oauth_token = state.find(request.caller()?, "oauth-tokens", token);
    let oauth_token = oauth_token.map_err(|_| ApiError::invalid("vcs-repo", "Oauth token does not exist"))?;
    let organization = state.store.organization_of(&oauth_token.id).ok_or_else(ApiError::not_found)?.to_owned();
    Ok((repository, organization))
}

fn add_repository(
    request: &ApiRequest,
    state: &mut State,
    organization: &str,
    repository: &Map<String, Value>,
) -> ApiResult {
    let last = required(repository, "identifier")?.rsplit('/').next().unwrap_or_default();
    let Some((provider, name)) = last.strip_prefix("terraform-").and_then(|rest| rest.split_once('-')) else {
        return Err(ApiError::invalid("identifier", "must be named terraform-PROVIDER-NAME"));
    };
    let mut module = new(request, organization, ["private", organization, name, provider]);
    module.set("publishing-mechanism", "git_tag");
    module.set("vcs-repo", repository.clone());
    add(state, module)
}

pub(super) async fn show(request: ApiRequest) -> ApiResult {
    let state = request.state();
    Ok(ok(&document(&state, one(&request, &state)?)))
}

/// Old route, with the old response: no namespace, no registry, and the organization's external id.
pub(super) async fn show_legacy(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let module = one(&request, &state)?;
    let mut document = document(&state, module);
    if let Some(attributes) = document["attributes"].as_object_mut() {
        attributes.remove("namespace");
        attributes.remove("registry-name");
    }
    let organization = state.store.find("organizations", &module.parent)?.text("external-id").to_owned();
    document["relationships"]["organization"]["data"]["id"] = organization.into();
    document["links"]["self"] = request.uri.path().into();
    Ok(ok(&document))
}

/// `/registry-modules/ID`, which resembles the old routes but is not one.
pub(super) async fn show_by_id(request: ApiRequest) -> ApiResult {
    let state = request.state();
    Ok(ok(&document(&state, state.find(request.caller()?, KIND, request.name("module"))?)))
}

/// `/registry-modules/ORGANIZATION/NAME/PROVIDER/commits`, which resembles the old routes but is not one.
pub(super) async fn list_commits(request: ApiRequest) -> ApiResult {
    let state = request.state();
    one(&request, &state)?;
    request.list(&[], Paging::Never)
}

pub(super) async fn update(request: ApiRequest) -> ApiResult {
    let attributes = request.attributes()?;
    let mut state = request.state();
    let mut module = one(&request, &state)?.clone();
    for name in ["no-code", "vcs-repo", "test-config"] {
        if let Some(value) = attributes.get(name).filter(|value| !value.is_null()) {
            module.set(name, value.clone());
        }
    }
    let response = ok(&document(&state, &module));
    state.store.put(module)?;
    Ok(response)
}

/// Deletes a module, or all modules of a name.
pub(super) async fn remove(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let ids: Vec<String> = find_module(&request, &state)?.into_iter().map(|module| module.id.clone()).collect();
    for id in ids {
        state.remove(&id);
    }
    Ok(no_content())
}

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
