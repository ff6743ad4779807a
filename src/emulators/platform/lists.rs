//! Plain lists: resources without behavior that are created, shown, updated and deleted. Includes most of the ten lists
//! of 2021-11-17.

use axum::Router;
use axum::routing::{MethodRouter, delete, get, patch, post};
use serde_json::{Map, Value, json};

use super::EmulatorState;
use super::lists_table::{LISTS, List, Pages};
use super::page::Paging;
use super::reply::{ApiError, ApiResult, created, no_content, ok};
use super::request::{ApiRequest, required};
use super::resources::Resource;
use super::state::State;

impl List {
    /// Returns the parent: for `/organizations/{parent}/...` an organization. Feature sets belong to the platform.
    fn parent(&self, request: &ApiRequest, state: &State) -> Result<String, ApiError> {
        let name = request.name("parent");
        let above = self.path.split('/').nth(1).unwrap_or_default();
        let exists = match above {
            "organizations" => state.store.find("organizations", name).is_ok(),
            // A list filled by fault injection has entries whose parent does not exist.
            _ => state.store.get(name).is_some() || !state.store.list(self.kind, name).is_empty(),
        };
        if self.kind == "feature-sets" {
            let allowed = name.is_empty() || (exists && state.may_see(request.caller()?, name));
            return if allowed { Ok(String::new()) } else { Err(ApiError::not_found()) };
        }
        if exists && state.may_see(request.caller()?, name) { Ok(name.to_owned()) } else { Err(ApiError::not_found()) }
    }

    fn show_all(&self, request: &ApiRequest) -> ApiResult {
        let state = request.state();
        let parent = self.parent(request, &state)?;
        let search = request.query("q").or_else(|| request.query("search[name]")).unwrap_or_default();
        let names: Option<Vec<&str>> = request.query("filter[names]").map(|names| names.split(',').collect());
        let all: Vec<Value> = state
            .store
            .list(self.kind, &parent)
            .into_iter()
            .filter(|entry| entry.text("name").contains(search))
            .filter(|entry| names.as_ref().is_none_or(|names| names.contains(&entry.text("name"))))
            .map(Resource::document)
            .collect();
        let paging = match self.pages {
            Pages::Configured => state.settings.paging,
            Pages::Always => Paging::Always,
            Pages::Never => Paging::Never,
        };
        request.list(&all, paging)
    }

    fn create(&self, request: &ApiRequest) -> ApiResult {
        let attributes = request.attributes()?;
        for need in self.needs {
            required(&attributes, need)?;
        }
        self.check(&attributes)?;
        let mut state = request.state();
        let parent = self.parent(request, &state)?;
        let name = attributes.get("name").and_then(Value::as_str);
        if name.is_some_and(|name| state.store.find_by_name(self.kind, &parent, name).is_some()) {
            return Err(ApiError::invalid("name", "Name has already been taken"));
        }
        let mut entry = Resource::new(self.kind, self.prefix, &parent);
        entry.set("created-at", super::ids::timestamp(request.now.wall));
        self.take(&mut entry, attributes);
        if self.path.starts_with("/organizations/") {
            entry.set_relationship("organization", "organizations", &parent);
        }
        if self.kind == "oauth-clients" {
            state.store.put(oauth_token(&mut entry))?;
        }
        let response = created(&entry.document());
        state.store.put(entry)?;
        Ok(response)
    }

    fn show(&self, request: &ApiRequest) -> ApiResult {
        let state = request.state();
        Ok(ok(&state.find(request.caller()?, self.kind, request.name("entry"))?.document()))
    }

    fn change(&self, request: &ApiRequest) -> ApiResult {
        let attributes = request.attributes()?;
        self.check(&attributes)?;
        let mut state = request.state();
        let mut entry = state.find(request.caller()?, self.kind, request.name("entry"))?.clone();
        self.take(&mut entry, attributes);
        let response = ok(&entry.document());
        state.store.put(entry)?;
        Ok(response)
    }

    fn remove(&self, request: &ApiRequest) -> ApiResult {
        let mut state = request.state();
        let id = state.find(request.caller()?, self.kind, request.name("entry"))?.id.clone();
        state.remove(&id);
        Ok(no_content())
    }

    fn take(&self, entry: &mut Resource, mut attributes: Map<String, Value>) {
        for hidden in self.hidden {
            attributes.remove(*hidden);
        }
        if attributes.get("sensitive") == Some(&Value::Bool(true)) {
            attributes.insert("value".to_owned(), Value::Null);
        }
        entry.attributes.extend(attributes);
    }

    fn check(&self, attributes: &Map<String, Value>) -> Result<(), ApiError> {
        let name = attributes.get("name").and_then(Value::as_str).unwrap_or_default();
        // Changelog entry of 2024-04-25.
        if self.kind == "projects" && name.chars().count() > 40 {
            return Err(ApiError::invalid("name", "Name is too long (maximum is 40 characters)"));
        }
        Ok(())
    }
}

/// Creates the token that comes with a new client of a version-control system.
fn oauth_token(client: &mut Resource) -> Resource {
    let mut token = Resource::new("oauth-tokens", "ot", &client.id);
    token.set("has-ssh-key", false);
    token.set("service-provider-user", "emulated");
    token.set_relationship("oauth-client", "oauth-clients", &client.id);
    client.relationships.insert("oauth-tokens".to_owned(), json!({"data": [{"id": token.id, "type": "oauth-tokens"}]}));
    token
}

/// Creates the routes of all lists.
pub(super) fn routes() -> Router<EmulatorState> {
    LISTS.iter().fold(Router::new(), |routes, list| {
        let mut all: MethodRouter<EmulatorState> =
            get(move |request: ApiRequest| async move { list.show_all(&request) });
        if !list.needs.is_empty() {
            all = all.merge(post(move |request: ApiRequest| async move { list.create(&request) }));
        }
        let routes = routes.route(&format!("/api/v2{}", list.path), all);
        if list.entry.is_empty() {
            return routes;
        }
        let entry_routes = get(move |request: ApiRequest| async move { list.show(&request) })
            .merge(patch(move |request: ApiRequest| async move { list.change(&request) }))
            .merge(delete(move |request: ApiRequest| async move { list.remove(&request) }));
        routes.route(&format!("/api/v2{}", list.entry), entry_routes)
    })
}
