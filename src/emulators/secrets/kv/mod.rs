//! Key-value stores: one with versions at `secret/`, one without at `kv/`.

mod api;
mod plain;
mod versioned;

use std::collections::{BTreeMap, BTreeSet};

use keyward_machine::clock::ClockReading;
use parking_lot::Mutex;
use serde_json::json;

pub(super) use api::Call;

/// Stores of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Stores {
    namespaces: Mutex<BTreeMap<String, Namespace>>,
    /// Private stores, by token.
    cubbyholes: Mutex<BTreeMap<String, plain::Store>>,
}

#[derive(Debug, Default)]
struct Namespace {
    versioned: versioned::Store,
    plain: plain::Store,
}

impl Stores {
    /// Creates stores with one value each, for a first try of a token.
    pub(super) fn with_examples(now: ClockReading) -> Self {
        let stores = Self::default();
        let value = json!({ "greeting": "hello from the emulated Vault" });
        let mut all = stores.namespaces.lock();
        let namespace = all.entry(String::new()).or_default();
        // Cannot fail: the store is empty.
        let _ = namespace.versioned.write("example", value.clone(), None, now);
        namespace.plain.write("example", value);
        drop(all);
        stores
    }
}

/// Lists the names directly below a folder; folders end with a slash.
fn names_below<'a>(paths: impl Iterator<Item = &'a String>, folder: &str) -> Vec<String> {
    let folder = folder.trim_end_matches('/');
    let names: BTreeSet<String> = paths
        .filter_map(
            |path| if folder.is_empty() { Some(path.as_str()) } else { path.strip_prefix(folder)?.strip_prefix('/') },
        )
        .map(|rest| rest.split_once('/').map_or_else(|| rest.to_owned(), |(first, _)| format!("{first}/")))
        .collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::names_below;

    #[test]
    fn folders_list_direct_children() {
        let paths = ["a", "a/b", "a/c/d", "a/c/e", "ab"].map(str::to_owned);
        let list = |folder: &str| names_below(paths.iter(), folder).join(" ");
        assert_eq!(list(""), "a a/ ab");
        assert_eq!(list("a"), "b c/");
        assert_eq!(list("a/c/"), "d e");
        assert_eq!(list("x"), "");
    }
}
