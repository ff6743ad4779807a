//! A key-value store without versions (version 1).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::names_below;
use crate::secrets::route::seconds;

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

/// Returns `lease_duration` of a read, as the passthrough backend of vault-plugin-secrets-kv computes it: the value's own
/// `ttl`, else its `lease`, else the server's default.
pub(super) fn lease_duration(value: &Value) -> Duration {
    let lifetime = value.get("ttl").or_else(|| value.get("lease"));
    lifetime.and_then(seconds).unwrap_or(DEFAULT_LEASE)
}

/// Default of the real server's `default_lease_ttl`.
const DEFAULT_LEASE: Duration = Duration::from_hours(768);
