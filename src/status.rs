//! Collects the status of sessions, and of the parts that have one, for operators. Never holds a secret.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::error_code::ErrorCode;
use crate::health::{Component, Health};

/// Registry of the sessions' status. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StatusRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// Handles by name, oldest first: during a replacement there are two, and the newest one that has reported counts.
    sessions: BTreeMap<String, Vec<(u64, SessionStatus)>>,
    /// Number of handles created so far.
    made: u64,
    reload_error: Option<String>,
    /// Status of parts, by its key in the whole.
    sections: BTreeMap<&'static str, Box<RawValue>>,
}

/// Status of one session. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SessionStatus {
    /// Source of the machine's identity, such as `metadata service (system-assigned)`.
    pub identity: String,
    /// Address of the Vault, OpenBao or Consul-compatible server.
    pub server: String,
    /// Role of the login.
    pub role: String,
    /// A token is available.
    pub serving: bool,
    /// Policies of the token.
    pub policies: Vec<String>,
    /// The token can be renewed.
    pub renewable: bool,
    /// Expiry of the token; absent for a token without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Next step: `renew`, `login` or `wait`.
    pub next_step: String,
    /// Time of the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_at: Option<String>,
    /// Time of the server's last response about the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<String>,
    /// Number of failures in a row.
    pub failures: u32,
    /// Last failure, with its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Code of the last failure, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_code: Option<ErrorCode>,
}

/// Status of the process, as `GET /agent/v1/status` returns it.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    version: &'static str,
    ready: bool,
    /// Sessions that the caller may see.
    sessions: BTreeMap<String, SessionStatus>,
    components: BTreeMap<String, Component>,
    /// Status of other parts, such as the upstream of the gateway.
    #[serde(flatten)]
    sections: BTreeMap<&'static str, Box<RawValue>>,
    /// Error of the last reload of the configuration; absent if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    reload_error: Option<String>,
}

impl Status {
    /// Builds the current status with these sessions.
    pub(crate) fn new(
        status_registry: &StatusRegistry,
        health: &Health,
        sessions: BTreeMap<String, SessionStatus>,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            ready: health.ready(),
            sessions,
            components: health.components(),
            sections: status_registry.sections(),
            reload_error: status_registry.reload_error(),
        }
    }
}

impl StatusRegistry {
    /// Creates a handle for a session of this name. It shows nothing before its first update and then hides older
    /// handles of the same name.
    pub fn register(&self, name: impl Into<String>) -> StatusHandle {
        let mut posted = self.lock();
        posted.made += 1;
        StatusHandle { name: name.into(), id: posted.made, status_registry: self.clone() }
    }

    /// Returns the status of all sessions by name.
    pub fn sessions(&self) -> BTreeMap<String, SessionStatus> {
        let posted = self.lock();
        posted.sessions.iter().filter_map(|(name, all)| Some((name.clone(), all.last()?.1.clone()))).collect()
    }

    /// Records the outcome of a reload: its error, or `None`.
    pub(crate) fn record_reload(&self, error: Option<String>) {
        self.lock().reload_error = error;
    }

    /// Returns the error of the last reload, if it failed.
    pub(crate) fn reload_error(&self) -> Option<String> {
        self.lock().reload_error.clone()
    }

    /// Sets the status of a part, which has this key in the whole; a status that cannot be serialized removes it.
    pub(crate) fn set_section(&self, key: &'static str, section: &impl Serialize) {
        match to_raw_value(section) {
            Ok(section) => self.lock().sections.insert(key, section),
            Err(_) => self.lock().sections.remove(key),
        };
    }

    /// Removes the status of a part.
    pub(crate) fn remove_section(&self, key: &str) {
        self.lock().sections.remove(key);
    }

    fn sections(&self) -> BTreeMap<&'static str, Box<RawValue>> {
        self.lock().sections.clone()
    }

    /// Returns the status of a part as JSON.
    pub fn section(&self, key: &str) -> Option<Box<RawValue>> {
        self.lock().sections.get(key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle for the status of one session; removes it when dropped.
#[derive(Debug)]
pub struct StatusHandle {
    name: String,
    id: u64,
    status_registry: StatusRegistry,
}

impl StatusHandle {
    /// Replaces the session's status. Returns true if the registry shows this handle's status.
    pub fn update(&self, session: SessionStatus) -> bool {
        let mut posted = self.status_registry.lock();
        let all = posted.sessions.entry(self.name.clone()).or_default();
        match all.binary_search_by_key(&self.id, |(id, _)| *id) {
            Ok(at) => all[at].1 = session,
            Err(at) => all.insert(at, (self.id, session)),
        }
        all.last().is_some_and(|(id, _)| *id == self.id)
    }

    /// Removes the session's status. Returns true if no other handle of its name is left.
    pub(crate) fn remove(&self) -> bool {
        let mut posted = self.status_registry.lock();
        let Some(all) = posted.sessions.get_mut(&self.name) else { return true };
        all.retain(|(id, _)| *id != self.id);
        let none = all.is_empty();
        if none {
            posted.sessions.remove(&self.name);
        }
        none
    }
}

impl Drop for StatusHandle {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_part_stands_in_the_whole_as_it_was_serialized() {
        let status_registry = StatusRegistry::default();
        let whole = || {
            let status = Status::new(&status_registry, &Health::default(), BTreeMap::new());
            serde_json::to_string(&status).unwrap()
        };
        assert!(!whole().contains("platform"));
        let section =
            RawValue::from_string(r#"{"upstream":"https://tfe.example.com","release":null}"#.to_owned()).unwrap();
        status_registry.set_section("platform", &section);
        let end = r#""components":{},"platform":{"upstream":"https://tfe.example.com","release":null}}"#;
        assert!(whole().ends_with(end), "{}", whole());
        status_registry.remove_section("platform");
        assert!(!whole().contains("platform"));
    }

    #[test]
    fn the_newest_handle_with_an_update_counts_and_an_older_one_removes_only_its_own() {
        let status_registry = StatusRegistry::default();
        let said = || status_registry.sessions().get("web").map(|session| session.role.clone());
        let post = |posting: &StatusHandle, role: &str| {
            posting.update(SessionStatus { role: role.to_owned(), ..SessionStatus::default() })
        };
        let (old, new) = (status_registry.register("web"), status_registry.register("web"));
        assert_eq!(said(), None);
        assert!(post(&old, "old"));
        drop(status_registry.register("web"));
        assert_eq!(said().as_deref(), Some("old"));
        assert!(post(&new, "new"));
        assert!(!post(&old, "old again"));
        assert_eq!(said().as_deref(), Some("new"));
        assert!(!old.remove());
        assert_eq!(said().as_deref(), Some("new"));
        assert!(new.remove());
        assert_eq!(said(), None);
    }
}
