//! Collects the status of sessions for operators. Never holds a secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use keyward_telemetry::status::SessionEntry;

/// Registry of the sessions' status. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SessionStatusRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// Handles by name, oldest first: during a replacement there are two, and the newest one that has reported counts.
    sessions: BTreeMap<String, Vec<(u64, SessionEntry)>>,
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
    pub fn sessions(&self) -> BTreeMap<String, SessionEntry> {
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
    pub fn update(&self, session: SessionEntry) -> bool {
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
            handle.update(SessionEntry { role: role.to_owned(), ..SessionEntry::default() })
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
