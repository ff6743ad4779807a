//! Private registry modules, by the routes of 2021-06-8 and by those that they replaced.

use serde_json::{Map, Value, json};

use super::ids;
use super::page::Paging;
use super::reply::{Answer, Refusal, made, nothing, shown};
use super::request::{Asked, required, text};
use super::state::State;
use super::store::Resource;

pub(super) const KIND: &str = "registry-modules";
pub(super) const VERSIONS: &str = "registry-module-versions";

/// The modules that the path means: one, or of all providers where it names none. The old routes name neither registry
/// nor namespace; they mean the private one, and the organization.
fn meant<'a>(asked: &Asked, state: &'a State) -> Result<Vec<&'a Resource>, Refusal> {
    let organization = asked.organization(state)?;
    let (registry, namespace) = match (asked.name("registry"), asked.name("namespace")) {
        ("", _) => ("private", organization.as_str()),
        named => named,
    };
    if registry == "public" && !state.turned.edition.is_hosted() {
        return Err(Refusal::not_found());
    }
    let (name, provider) = (asked.name("name"), asked.name("provider"));
    let found: Vec<&Resource> = state
        .store
        .list(KIND, &organization)
        .into_iter()
        .filter(|module| module.text("registry-name") == registry && module.text("namespace") == namespace)
        .filter(|module| module.text("name") == name)
        .filter(|module| provider.is_empty() || module.text("provider") == provider)
        .collect();
    if found.is_empty() { Err(Refusal::not_found()) } else { Ok(found) }
}

pub(super) fn one<'a>(asked: &Asked, state: &'a State) -> Result<&'a Resource, Refusal> {
    meant(asked, state)?.first().copied().ok_or_else(Refusal::not_found)
}

/// A module with the state of its versions.
fn document(state: &State, module: &Resource) -> Value {
    let versions = state.store.list(VERSIONS, &module.id).into_iter();
    let statuses: Vec<Value> =
        versions.map(|version| json!({"version": version.text("version"), "status": version.text("status")})).collect();
    let mut document = module.document();
    document["attributes"]["version-statuses"] = statuses.into();
    document
}

pub(super) async fn list(asked: Asked) -> Answer {
    let state = asked.state();
    let organization = asked.organization(&state)?;
    let is = |module: &Resource, attribute: &str, filter: &str| {
        asked.query(filter).is_none_or(|wanted| module.text(attribute) == wanted)
    };
    let modules: Vec<Value> = state
        .store
        .list(KIND, &organization)
        .into_iter()
        .filter(|module| module.text("name").contains(asked.query("q").unwrap_or_default()))
        .filter(|module| is(module, "provider", "filter[provider]"))
        .filter(|module| is(module, "registry-name", "filter[registry_name]"))
        .map(|module| document(&state, module))
        .collect();
    asked.list(&modules, Paging::Always)
}

pub(super) async fn create(asked: Asked) -> Answer {
    let attributes = asked.attributes()?;
    let (name, provider) = (required(&attributes, "name")?, required(&attributes, "provider")?);
    let mut state = asked.state();
    let organization = asked.organization(&state)?;
    let registry = text(&attributes, "registry-name").unwrap_or("private");
    if registry == "public" && !state.turned.edition.is_hosted() {
        return Err(Refusal::not_found());
    }
    let namespace = text(&attributes, "namespace").filter(|_| registry == "public").unwrap_or(&organization);
    let module = new(&asked, &organization, [registry, namespace, name, provider]);
    add(&mut state, module)
}

fn new(asked: &Asked, organization: &str, [registry, namespace, name, provider]: [&str; 4]) -> Resource {
    let mut module = Resource::new(KIND, "mod", organization);
    module.set("name", name);
    module.set("provider", provider);
    module.set("namespace", namespace);
    module.set("registry-name", registry);
    module.set("no-code", false);
    module.set("publishing-mechanism", "non_vcs");
    module.set("status", "pending");
    module.set("permissions", json!({"can-delete": true, "can-resync": true, "can-retry": true}));
    module.set("created-at", ids::timestamp(asked.now.wall));
    module.set("updated-at", ids::timestamp(asked.now.wall));
    module.relate("organization", "organizations", organization);
    let path =
        format!("/api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}");
    module.links.insert("self".to_owned(), path.into());
    module
}

fn add(state: &mut State, module: Resource) -> Answer {
    let same = |other: &&Resource| {
        ["registry-name", "namespace", "name", "provider"].iter().all(|name| other.text(name) == module.text(name))
    };
    if state.store.list(KIND, &module.parent).iter().any(same) {
        return Err(Refusal::invalid("name", "Name has already been taken"));
    }
    let answer = made(&document(state, &module));
    state.store.put(module)?;
    Ok(answer)
}

/// A module that is read from a repository named `terraform-PROVIDER-NAME`.
pub(super) async fn create_from_repository(asked: Asked) -> Answer {
    let mut state = asked.state();
    let organization = asked.organization(&state)?;
    let (repository, _) = repository(&asked, &state)?;
    add_repository(&asked, &mut state, &organization, &repository)
}

/// The old route: no organization is named, so the one of the OAuth token is meant.
pub(super) async fn create_from_repository_of_token(asked: Asked) -> Answer {
    let mut state = asked.state();
    let (repository, organization) = repository(&asked, &state)?;
    add_repository(&asked, &mut state, &organization, &repository)
}

fn repository(asked: &Asked, state: &State) -> Result<(Map<String, Value>, String), Refusal> {
    let mut attributes = asked.attributes()?;
    let Some(Value::Object(repository)) = attributes.remove("vcs-repo") else {
        return Err(Refusal::invalid("vcs-repo", "can't be blank"));
    };
    let token = required(&repository, "oauth-token-id")?;
    let known = state.find(asked.caller()?, "oauth-tokens", token);
    let known = known.map_err(|_| Refusal::invalid("vcs-repo", "Oauth token does not exist"))?;
    let organization = state.store.organization_of(&known.id).ok_or_else(Refusal::not_found)?.to_owned();
    Ok((repository, organization))
}

fn add_repository(asked: &Asked, state: &mut State, organization: &str, repository: &Map<String, Value>) -> Answer {
    let last = required(repository, "identifier")?.rsplit('/').next().unwrap_or_default();
    let Some((provider, name)) = last.strip_prefix("terraform-").and_then(|rest| rest.split_once('-')) else {
        return Err(Refusal::invalid("identifier", "must be named terraform-PROVIDER-NAME"));
    };
    let mut module = new(asked, organization, ["private", organization, name, provider]);
    module.set("publishing-mechanism", "git_tag");
    module.set("vcs-repo", repository.clone());
    add(state, module)
}

pub(super) async fn show(asked: Asked) -> Answer {
    let state = asked.state();
    Ok(shown(&document(&state, one(&asked, &state)?)))
}

/// The old route. What it answers is older too: no namespace, no registry, and the organization's other id.
pub(super) async fn show_as_before(asked: Asked) -> Answer {
    let state = asked.state();
    let module = one(&asked, &state)?;
    let mut document = document(&state, module);
    if let Some(attributes) = document["attributes"].as_object_mut() {
        attributes.remove("namespace");
        attributes.remove("registry-name");
    }
    let organization = state.store.find("organizations", &module.parent)?.text("external-id").to_owned();
    document["relationships"]["organization"]["data"]["id"] = organization.into();
    document["links"]["self"] = asked.uri.path().into();
    Ok(shown(&document))
}

/// `/registry-modules/ID`, which looks like the old routes and is none.
pub(super) async fn show_by_id(asked: Asked) -> Answer {
    let state = asked.state();
    Ok(shown(&document(&state, state.find(asked.caller()?, KIND, asked.name("module"))?)))
}

/// `/registry-modules/ORGANIZATION/NAME/PROVIDER/commits`, which looks like the old routes and is none.
pub(super) async fn list_commits(asked: Asked) -> Answer {
    let state = asked.state();
    one(&asked, &state)?;
    asked.list(&[], Paging::Never)
}

pub(super) async fn update(asked: Asked) -> Answer {
    let attributes = asked.attributes()?;
    let mut state = asked.state();
    let mut module = one(&asked, &state)?.clone();
    for name in ["no-code", "vcs-repo", "test-config"] {
        if let Some(value) = attributes.get(name).filter(|value| !value.is_null()) {
            module.set(name, value.clone());
        }
    }
    let answer = shown(&document(&state, &module));
    state.store.put(module)?;
    Ok(answer)
}

/// Removes a module, or all of a name.
pub(super) async fn remove(asked: Asked) -> Answer {
    let mut state = asked.state();
    let ids: Vec<String> = meant(&asked, &state)?.into_iter().map(|module| module.id.clone()).collect();
    for id in ids {
        state.remove(&id);
    }
    Ok(nothing())
}
