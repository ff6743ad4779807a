//! A plain key-value store (`secret/data/...`), so that a token can be used for something.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// Values by namespace and path, the newest version alone.
#[derive(Debug, Default)]
pub(super) struct Store(Mutex<BTreeMap<(String, String), (u64, Value)>>);

impl Store {
    /// A store that holds one value to try a token on.
    pub(super) fn with_an_example() -> Self {
        let store = Self::default();
        store.write("", "example", json!({ "greeting": "hello from the emulated secrets server" }));
        store
    }

    /// The `data` part of a read's answer.
    pub(super) fn read(&self, namespace: &str, path: &str) -> Option<Value> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, value) = values.get(&(namespace.to_owned(), path.to_owned()))?;
        Some(json!({ "data": value, "metadata": { "version": version, "destroyed": false } }))
    }

    /// Takes a value; gives the `data` part of a write's answer.
    pub(super) fn write(&self, namespace: &str, path: &str, value: Value) -> Value {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = values.entry((namespace.to_owned(), path.to_owned())).or_default();
        *entry = (entry.0 + 1, value);
        json!({ "version": entry.0, "destroyed": false })
    }
}
