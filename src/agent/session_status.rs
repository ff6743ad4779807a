//! Collects the status of sessions for operators. Never holds a secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use keyward_telemetry::error_code::ErrorCode;

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
    /// Start of the token's lease: its login, or the last renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<String>,
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
    /// Call in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<SessionActivity>,
    /// Number of failures in a row.
    pub failures: u32,
    /// Last failure, with its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Code of the last failure, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_code: Option<ErrorCode>,
}

/// Call of a session in flight. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionActivity {
    /// Kind of the call.
    pub(crate) kind: ActivityKind,
    /// Beginning of the call.
    pub(crate) since: String,
    /// Time at which the session gives the call up.
    pub(crate) deadline: String,
}

/// Kind of a session's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActivityKind {
    /// Gets the proof of a login from the identity source.
    Proof,
    /// Logs in at the server.
    Login,
    /// Renews the token.
    Renewal,
    /// Looks the token up.
    Lookup,
}

/// Registry of the sessions' status. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SessionStatusRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// Handles by name, oldest first: during a replacement there are two, and the newest one that has reported counts.
    sessions: BTreeMap<String, Vec<(u64, SessionStatus)>>,
    /// Number of handles created so far.
    created: u64,
}

impl SessionStatusRegistry {
    /// Creates a handle for a session of this name. It shows nothing before its first update and then hides older
    /// handles of the same name.
    pub fn register(&self, name: impl Into<String>) -> SessionStatusHandle {
        let mut state = self.0.lock();
        state.created += 1;
        SessionStatusHandle { name: name.into(), id: state.created, registry: self.clone() }
    }

    /// Returns the status of all sessions by name.
    pub fn sessions(&self) -> BTreeMap<String, SessionStatus> {
        let state = self.0.lock();
        state.sessions.iter().filter_map(|(name, all)| Some((name.clone(), all.last()?.1.clone()))).collect()
    }
}

/// Handle for the status of one session; removes it when dropped.
#[derive(Debug)]
pub struct SessionStatusHandle {
    name: String,
    id: u64,
    registry: SessionStatusRegistry,
}

impl SessionStatusHandle {
    /// Replaces the session's status. Returns true if the registry shows this handle's status.
    pub fn update(&self, session: SessionStatus) -> bool {
        let mut state = self.registry.0.lock();
        let all = state.sessions.entry(self.name.clone()).or_default();
        match all.binary_search_by_key(&self.id, |(id, _)| *id) {
            Ok(at) => all[at].1 = session,
            Err(at) => all.insert(at, (self.id, session)),
        }
        all.last().is_some_and(|(id, _)| *id == self.id)
    }

    /// Removes the session's status. Returns true if no other handle of its name is left.
    pub(crate) fn remove(&self) -> bool {
        let mut state = self.registry.0.lock();
        let Some(all) = state.sessions.get_mut(&self.name) else { return true };
        all.retain(|(id, _)| *id != self.id);
        let none = all.is_empty();
        if none {
            state.sessions.remove(&self.name);
        }
        none
    }
}

impl Drop for SessionStatusHandle {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_handle_with_an_update_counts_and_an_older_one_removes_only_its_own() {
        let registry = SessionStatusRegistry::default();
        let shown = || registry.sessions().get("web").map(|session| session.role.clone());
        let update = |handle: &SessionStatusHandle, role: &str| {
            handle.update(SessionStatus { role: role.to_owned(), ..SessionStatus::default() })
        };
        let old = registry.register("web");
        let new = registry.register("web");
        assert_eq!(shown(), None);
        assert!(update(&old, "old"));
        drop(registry.register("web"));
        assert_eq!(shown().as_deref(), Some("old"));
        assert!(update(&new, "new"));
        assert!(!update(&old, "old again"));
        assert_eq!(shown().as_deref(), Some("new"));
        assert!(!old.remove());
        assert_eq!(shown().as_deref(), Some("new"));
        assert!(new.remove());
        assert_eq!(shown(), None);
    }
}
