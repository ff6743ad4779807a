//! Plain lists: things that are made, shown, changed and removed, and do nothing. Most of the ten lists of 2021-11-17
//! are among them.

use axum::Router;
use axum::routing::{MethodRouter, delete, get, patch, post};
use serde_json::{Map, Value, json};

use super::Held;
use super::lists_table::{LISTS, List, Pages};
use super::page::Paging;
use super::reply::{Answer, Refusal, made, nothing, shown};
use super::request::{Asked, required};
use super::state::State;
use super::store::Resource;

impl List {
    /// What it belongs to: for `/organizations/{parent}/...` an organization. Feature sets belong to the platform,
    /// whoever asks.
    fn parent(&self, asked: &Asked, state: &State) -> Result<String, Refusal> {
        let name = asked.name("parent");
        let above = self.path.split('/').nth(1).unwrap_or_default();
        let known = match above {
            "organizations" => state.store.find("organizations", name).is_ok(),
            // A list that was filled by a dial has entries, and nothing that they belong to.
            _ => state.store.get(name).is_some() || !state.store.list(self.kind, name).is_empty(),
        };
        if self.kind == "feature-sets" {
            let allowed = name.is_empty() || (known && state.may_see(asked.caller()?, name));
            return if allowed { Ok(String::new()) } else { Err(Refusal::not_found()) };
        }
        if known && state.may_see(asked.caller()?, name) { Ok(name.to_owned()) } else { Err(Refusal::not_found()) }
    }

    fn show_all(&self, asked: &Asked) -> Answer {
        let state = asked.state();
        let parent = self.parent(asked, &state)?;
        let wanted = asked.query("q").or_else(|| asked.query("search[name]")).unwrap_or_default();
        let names: Option<Vec<&str>> = asked.query("filter[names]").map(|names| names.split(',').collect());
        let all: Vec<Value> = state
            .store
            .list(self.kind, &parent)
            .into_iter()
            .filter(|entry| entry.text("name").contains(wanted))
            .filter(|entry| names.as_ref().is_none_or(|names| names.contains(&entry.text("name"))))
            .map(Resource::document)
            .collect();
        let paging = match self.pages {
            Pages::Dial => state.turned.paging,
            Pages::Always => Paging::Always,
            Pages::Never => Paging::Never,
        };
        asked.list(&all, paging)
    }

    fn create(&self, asked: &Asked) -> Answer {
        let attributes = asked.attributes()?;
        for need in self.needs {
            required(&attributes, need)?;
        }
        self.check(&attributes)?;
        let mut state = asked.state();
        let parent = self.parent(asked, &state)?;
        let name = attributes.get("name").and_then(Value::as_str);
        if name.is_some_and(|name| state.store.named(self.kind, &parent, name).is_some()) {
            return Err(Refusal::invalid("name", "Name has already been taken"));
        }
        let mut entry = Resource::new(self.kind, self.prefix, &parent);
        entry.set("created-at", super::ids::timestamp(asked.now.wall));
        self.take(&mut entry, attributes);
        if self.path.starts_with("/organizations/") {
            entry.relate("organization", "organizations", &parent);
        }
        if self.kind == "oauth-clients" {
            state.store.put(oauth_token(&mut entry))?;
        }
        let answer = made(&entry.document());
        state.store.put(entry)?;
        Ok(answer)
    }

    fn show(&self, asked: &Asked) -> Answer {
        let state = asked.state();
        Ok(shown(&state.find(asked.caller()?, self.kind, asked.name("entry"))?.document()))
    }

    fn change(&self, asked: &Asked) -> Answer {
        let attributes = asked.attributes()?;
        self.check(&attributes)?;
        let mut state = asked.state();
        let mut entry = state.find(asked.caller()?, self.kind, asked.name("entry"))?.clone();
        self.take(&mut entry, attributes);
        let answer = shown(&entry.document());
        state.store.put(entry)?;
        Ok(answer)
    }

    fn remove(&self, asked: &Asked) -> Answer {
        let mut state = asked.state();
        let id = state.find(asked.caller()?, self.kind, asked.name("entry"))?.id.clone();
        state.remove(&id);
        Ok(nothing())
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

    fn check(&self, attributes: &Map<String, Value>) -> Result<(), Refusal> {
        let name = attributes.get("name").and_then(Value::as_str).unwrap_or_default();
        // The entry of 2024-04-25.
        if self.kind == "projects" && name.chars().count() > 40 {
            return Err(Refusal::invalid("name", "Name is too long (maximum is 40 characters)"));
        }
        Ok(())
    }
}

/// The token that a new client of a version-control system comes with.
fn oauth_token(client: &mut Resource) -> Resource {
    let mut token = Resource::new("oauth-tokens", "ot", &client.id);
    token.set("has-ssh-key", false);
    token.set("service-provider-user", "emulated");
    token.relate("oauth-client", "oauth-clients", &client.id);
    client.relationships.insert("oauth-tokens".to_owned(), json!({"data": [{"id": token.id, "type": "oauth-tokens"}]}));
    token
}

/// The routes of all lists.
pub(super) fn routes() -> Router<Held> {
    LISTS.iter().fold(Router::new(), |routes, list| {
        let mut all: MethodRouter<Held> = get(move |asked: Asked| async move { list.show_all(&asked) });
        if !list.needs.is_empty() {
            all = all.merge(post(move |asked: Asked| async move { list.create(&asked) }));
        }
        let routes = routes.route(&format!("/api/v2{}", list.path), all);
        if list.entry.is_empty() {
            return routes;
        }
        let one = get(move |asked: Asked| async move { list.show(&asked) })
            .merge(patch(move |asked: Asked| async move { list.change(&asked) }))
            .merge(delete(move |asked: Asked| async move { list.remove(&asked) }));
        routes.route(&format!("/api/v2{}", list.entry), one)
    })
}
