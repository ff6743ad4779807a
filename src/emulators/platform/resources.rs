//! Store of everything with an id: organizations, workspaces, teams, modules and the rest, as JSON:API resources.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::ids;
use super::reply::ApiError;

/// A resource. Members of `hidden` are never shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Resource {
    pub(super) id: String,
    pub(super) kind: &'static str,
    /// Id of its parent; empty if it belongs to the platform.
    pub(super) parent: String,
    pub(super) attributes: Map<String, Value>,
    pub(super) relationships: Map<String, Value>,
    pub(super) links: Map<String, Value>,
    pub(super) hidden: BTreeMap<&'static str, String>,
    /// Creation order, by which lists are sorted.
    order: u64,
    bytes: usize,
}

impl Resource {
    pub(super) fn new(kind: &'static str, prefix: &str, parent: &str) -> Self {
        Self { id: ids::id(prefix), kind, parent: parent.to_owned(), ..Self::default() }
    }

    /// Returns a string attribute; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.attributes.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.attributes.insert(name.to_owned(), value.into());
    }

    /// Sets a relationship to another resource.
    pub(super) fn set_relationship(&mut self, name: &str, kind: &str, id: &str) {
        self.relationships.insert(name.to_owned(), json!({"data": {"id": id, "type": kind}}));
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "id": self.id, "type": self.kind, "attributes": self.attributes, "relationships": self.relationships,
            "links": self.links,
        })
    }

    fn size_in_bytes(&self) -> usize {
        self.document().to_string().len() + self.hidden.values().map(String::len).sum::<usize>()
    }
}

/// All resources, by id. Organizations have their name as id.
#[derive(Debug, Default)]
pub(super) struct Store {
    resources: BTreeMap<String, Resource>,
    next: u64,
    bytes: usize,
}

/// Limits of the store.
const MAX_RESOURCES: usize = 50_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;

impl Store {
    /// Adds or replaces a resource.
    pub(super) fn put(&mut self, mut resource: Resource) -> Result<(), ApiError> {
        let previous = self.resources.get(&resource.id).map(|previous| (previous.order, previous.bytes));
        resource.bytes = resource.size_in_bytes();
        let bytes = self.bytes + resource.bytes - previous.map_or(0, |(_, bytes)| bytes);
        if bytes > MAX_BYTES || (previous.is_none() && self.resources.len() >= MAX_RESOURCES) {
            return Err(ApiError::too_large());
        }
        self.bytes = bytes;
        resource.order = previous.map_or(self.next, |(order, _)| order);
        self.next += 1;
        self.resources.insert(resource.id.clone(), resource);
        Ok(())
    }

    pub(super) fn get(&self, id: &str) -> Option<&Resource> {
        self.resources.get(id)
    }

    /// Finds a resource by id and kind.
    pub(super) fn find(&self, kind: &str, id: &str) -> Result<&Resource, ApiError> {
        self.resources.get(id).filter(|resource| resource.kind == kind).ok_or_else(ApiError::not_found)
    }

    /// Lists the resources of a kind and parent, oldest first.
    pub(super) fn list(&self, kind: &str, parent: &str) -> Vec<&Resource> {
        let belongs = |resource: &&Resource| resource.kind == kind && resource.parent == parent;
        let mut list: Vec<&Resource> = self.resources.values().filter(belongs).collect();
        list.sort_by_key(|resource| resource.order);
        list
    }

    /// Finds a resource by kind, parent and name.
    pub(super) fn find_by_name(&self, kind: &str, parent: &str, name: &str) -> Option<&Resource> {
        self.list(kind, parent).into_iter().find(|resource| resource.text("name") == name)
    }

    /// Deletes a resource with all that belongs to it; returns them.
    pub(super) fn remove(&mut self, id: &str) -> Vec<Resource> {
        let mut removed: Vec<Resource> = self.resources.remove(id).into_iter().collect();
        let mut at = 0;
        while let Some(parent) = removed.get(at).map(|resource| resource.id.clone()) {
            let children: Vec<String> =
                self.resources.values().filter(|child| child.parent == parent).map(|child| child.id.clone()).collect();
            removed.extend(children.iter().filter_map(|child| self.resources.remove(child)));
            at += 1;
        }
        self.bytes -= removed.iter().map(|resource| resource.bytes).sum::<usize>();
        removed
    }

    /// Returns the organization that a resource belongs to, directly or not.
    pub(super) fn organization_of(&self, id: &str) -> Option<&str> {
        let mut resource = self.resources.get(id)?;
        while resource.kind != "organizations" {
            resource = self.resources.get(&resource.parent)?;
        }
        Some(&resource.id)
    }
}
