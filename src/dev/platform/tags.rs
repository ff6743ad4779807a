//! The tags of a workspace: the entry of 2021-07-30.

use serde_json::{Value, json};

use super::asked::Asked;
use super::page::Paging;
use super::reply::{Answer, nothing};
use super::store::Resource;
use super::workspaces::find;

pub(super) fn names(workspace: &Resource) -> Vec<&str> {
    let names = workspace.attributes.get("tag-names").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(super) async fn list(asked: Asked) -> Answer {
    let state = asked.state();
    let workspace = find(&asked, &state)?;
    let tags = names(&workspace)
        .into_iter()
        .map(|name| json!({"id": format!("tag-{name}"), "type": "tags", "attributes": {"name": name}}));
    asked.list(&tags.collect::<Vec<_>>(), Paging::Always)
}

pub(super) async fn add(asked: Asked) -> Answer {
    tag(&asked, true)
}

pub(super) async fn remove(asked: Asked) -> Answer {
    tag(&asked, false)
}

fn tag(asked: &Asked, add: bool) -> Answer {
    let sent = asked.sent()?;
    let tags = sent.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut state = asked.state();
    let mut workspace = find(asked, &state)?;
    change(&mut workspace, &tags, add);
    state.store.put(workspace)?;
    Ok(nothing())
}

pub(super) fn change(workspace: &mut Resource, tags: &[Value], add: bool) {
    let named = |tag: &Value| {
        let name = tag.pointer("/attributes/name").and_then(Value::as_str).map(ToOwned::to_owned);
        name.or_else(|| Some(tag.get("id")?.as_str()?.strip_prefix("tag-")?.to_owned()))
    };
    let changed: Vec<String> = tags.iter().filter_map(named).collect();
    let mut all: Vec<String> = names(workspace).into_iter().map(ToOwned::to_owned).collect();
    all.retain(|name| !changed.contains(name));
    if add {
        all.extend(changed);
    }
    workspace.set("tag-names", all);
}
