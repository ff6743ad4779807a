//! A key-value store without versions (version 1).

use std::collections::BTreeMap;

use serde_json::Value;

use super::names_below;

/// Values by path.
#[derive(Debug, Default)]
pub(super) struct Store(BTreeMap<String, Value>);

impl Store {
    pub(super) fn read(&self, path: &str) -> Option<&Value> {
        self.0.get(path)
    }

    pub(super) fn write(&mut self, path: &str, value: Value) {
        self.0.insert(path.to_owned(), value);
    }

    pub(super) fn delete(&mut self, path: &str) {
        self.0.remove(path);
    }

    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        names_below(self.0.keys(), folder)
    }
}
