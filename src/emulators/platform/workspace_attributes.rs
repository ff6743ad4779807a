//! Attributes of a workspace: defaults, those that a client may set, and tags.

use serde_json::{Map, Value, json};

use super::resources::Resource;

/// Creates a workspace without a name.
pub(super) fn new(organization: &str, now: &str) -> Resource {
    let mut workspace = Resource::new("workspaces", "ws", organization);
    workspace.attributes = default_attributes();
    for name in ["created-at", "updated-at", "latest-change-at"] {
        workspace.set(name, now);
    }
    workspace.set_relationship("organization", "organizations", organization);
    workspace.relationships.insert("current-state-version".to_owned(), json!({"data": null}));
    workspace.relationships.insert("locked-by".to_owned(), json!({"data": null}));
    workspace.links.insert("self".to_owned(), format!("/api/v2/workspaces/{}", workspace.id).into());
    workspace
}

/// Returns the attributes of a new workspace without its name and times.
fn default_attributes() -> Map<String, Value> {
    let permissions: Map<String, Value> = [
        "can-update",
        "can-destroy",
        "can-queue-run",
        "can-queue-apply",
        "can-queue-destroy",
        "can-read-settings",
        "can-lock",
        "can-unlock",
        "can-force-unlock",
        "can-update-variable",
        "can-read-variable",
        "can-read-state-versions",
        "can-create-state-versions",
        "can-read-state-outputs",
        "can-manage-tags",
        "can-force-delete",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), true.into()))
    .collect();
    let attributes = json!({
        "actions": {"is-destroyable": true}, "agent-pool-id": null, "allow-destroy-plan": true, "auto-apply": false,
        "description": null, "environment": "default", "execution-mode": "local", "file-triggers-enabled": true,
        "global-remote-state": false, "locked": false, "operations": false, "permissions": permissions,
        "queue-all-runs": false, "resource-count": 0,
        "setting-overwrites": {"execution-mode": false, "agent-pool": false}, "source": "tfe-api",
        "speculative-enabled": true, "structured-run-output-enabled": true, "tag-names": [],
        "terraform-version": "latest", "trigger-prefixes": [], "working-directory": null,
    });
    if let Value::Object(attributes) = attributes { attributes } else { Map::new() }
}

/// Attributes that the server computes. The execution mode stays `local`, as runs are not emulated.
const READ_ONLY: [&str; 10] = [
    "actions",
    "created-at",
    "execution-mode",
    "latest-change-at",
    "locked",
    "operations",
    "permissions",
    "resource-count",
    "tag-names",
    "updated-at",
];

/// Sets the attributes that a client may set; null resets one to its default.
pub(super) fn set_attributes(workspace: &mut Resource, attributes: Map<String, Value>) {
    let defaults = default_attributes();
    for (name, value) in attributes.into_iter().filter(|(name, _)| !READ_ONLY.contains(&name.as_str())) {
        match if value.is_null() { defaults.get(&name).cloned() } else { Some(value) } {
            Some(value) => workspace.set(&name, value),
            None => _ = workspace.attributes.remove(&name),
        }
    }
}

/// Returns the names of the tags: changelog entry of 2021-07-30.
pub(super) fn tag_names(workspace: &Resource) -> Vec<&str> {
    let names = workspace.attributes.get("tag-names").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Adds or removes tags.
pub(super) fn change_tags(workspace: &mut Resource, tags: &[Value], add: bool) {
    let tag_name = |tag: &Value| {
        let name = tag.pointer("/attributes/name").and_then(Value::as_str).map(ToOwned::to_owned);
        name.or_else(|| Some(tag.get("id")?.as_str()?.strip_prefix("tag-")?.to_owned()))
    };
    let changed: Vec<String> = tags.iter().filter_map(tag_name).collect();
    let mut all: Vec<String> = tag_names(workspace).into_iter().map(ToOwned::to_owned).collect();
    all.retain(|name| !changed.contains(name));
    if add {
        all.extend(changed);
    }
    workspace.set("tag-names", all);
}
