//! Collects the status of the process, and of the parts that have one, for operators. Never holds a secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::health::{ComponentStatus, Health};
use crate::time_format::format_rfc3339;

/// Registry of the parts' status. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StatusRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    reload_failure: ReloadFailure,
    /// Status of parts, by its key in the whole.
    sections: BTreeMap<&'static str, Box<RawValue>>,
}

/// Failure of the last reload of the configuration; empty if it succeeded.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReloadFailure {
    /// Errors of the new configuration, in one line; absent if it is applied.
    #[serde(rename = "reload_error", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the running process can never apply the new configuration, and a restarted one could.
    #[serde(rename = "reload_needs_restart", skip_serializing_if = "std::ops::Not::not")]
    pub needs_restart: bool,
}

/// Status of the process, as `GET /agent/v1/status` returns it.
#[derive(Debug, Serialize)]
pub struct Status<S> {
    version: &'static str,
    /// Time of this status by the clock of the process, RFC 3339, in UTC. All other times are by the same clock.
    time: String,
    /// Start of the process.
    started_at: String,
    pid: u32,
    ready: bool,
    /// Sessions that the caller may see.
    sessions: S,
    components: BTreeMap<String, ComponentStatus>,
    /// Status of other parts, such as the upstream of the gateway.
    #[serde(flatten)]
    sections: BTreeMap<&'static str, Box<RawValue>>,
    #[serde(flatten)]
    reload_failure: ReloadFailure,
}

impl<S> Status<S> {
    /// Builds the current status with these sessions.
    pub fn new(status_registry: &StatusRegistry, health: &Health, sessions: S) -> Self {
        let now = health.now();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            time: format_rfc3339(now.wall),
            started_at: format_rfc3339(now.wall_time_of(health.started_at())),
            pid: std::process::id(),
            ready: health.is_ready(),
            sessions,
            components: health.statuses(),
            sections: status_registry.sections(),
            reload_failure: status_registry.reload_failure(),
        }
    }
}

impl StatusRegistry {
    /// Records the outcome of a reload.
    pub fn record_reload(&self, failure: ReloadFailure) {
        self.0.lock().reload_failure = failure;
    }

    /// Returns the failure of the last reload; empty if it succeeded.
    pub(crate) fn reload_failure(&self) -> ReloadFailure {
        self.0.lock().reload_failure.clone()
    }

    /// Sets the status of a part, which has this key in the whole; a status that cannot be serialized removes it.
    pub fn set_section(&self, key: &'static str, section: &impl Serialize) {
        match to_raw_value(section) {
            Ok(section) => self.0.lock().sections.insert(key, section),
            Err(_) => self.0.lock().sections.remove(key),
        };
    }

    /// Removes the status of a part.
    pub fn remove_section(&self, key: &str) {
        self.0.lock().sections.remove(key);
    }

    fn sections(&self) -> BTreeMap<&'static str, Box<RawValue>> {
        self.0.lock().sections.clone()
    }

    /// Returns the status of a part as JSON.
    pub fn section(&self, key: &str) -> Option<Box<RawValue>> {
        self.0.lock().sections.get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_part_stands_in_the_whole_as_it_was_serialized() {
        let status_registry = StatusRegistry::default();
        let status = || {
            let status = Status::new(&status_registry, &Health::default(), serde_json::Map::new());
            serde_json::to_string(&status).unwrap()
        };
        assert!(!status().contains("platform"));
        let section =
            RawValue::from_string(r#"{"upstream":"https://tfe.example.com","release":null}"#.to_owned()).unwrap();
        status_registry.set_section("platform", &section);
        let end = r#""components":{},"platform":{"upstream":"https://tfe.example.com","release":null}}"#;
        assert!(status().ends_with(end), "{}", status());
        status_registry.remove_section("platform");
        assert!(!status().contains("platform"));
    }
}
