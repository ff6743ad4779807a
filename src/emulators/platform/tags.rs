//! Tags of a workspace: changelog entry of 2021-07-30.

use serde_json::Value;

use super::store::Resource;

pub(super) fn names(workspace: &Resource) -> Vec<&str> {
    let names = workspace.attributes.get("tag-names").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Adds or removes tags.
pub(super) fn change(workspace: &mut Resource, tags: &[Value], add: bool) {
    let tag_name = |tag: &Value| {
        let name = tag.pointer("/attributes/name").and_then(Value::as_str).map(ToOwned::to_owned);
        name.or_else(|| Some(tag.get("id")?.as_str()?.strip_prefix("tag-")?.to_owned()))
    };
    let changed: Vec<String> = tags.iter().filter_map(tag_name).collect();
    let mut all: Vec<String> = names(workspace).into_iter().map(ToOwned::to_owned).collect();
    all.retain(|name| !changed.contains(name));
    if add {
        all.extend(changed);
    }
    workspace.set("tag-names", all);
}
