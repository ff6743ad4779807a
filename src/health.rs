//! Tracks the readiness of components; the process is ready when all required components are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::error_code::ErrorCode;

/// Health of all components of the process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Registrations by name, oldest first: during a replacement there are two, and the newest counts.
    components: Mutex<BTreeMap<String, Vec<(u64, Component)>>>,
    version: watch::Sender<u64>,
}

/// Health of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    /// The component works.
    pub ready: bool,
    /// The process is ready only if this component is.
    pub required: bool,
    /// The component has been ready at least once since it started.
    pub started: bool,
    /// Reason why it is not ready; holds no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Code of the error that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
}

impl Component {
    /// Formats the reason with its code.
    pub(crate) fn describe(&self) -> String {
        ErrorCode::tag(self.code, self.reason.as_deref().unwrap_or("not ready"))
    }
}

impl Health {
    /// Registers a component that is not ready yet, with a name such as `session/web` or `sink/token`. It is removed
    /// when the handle is dropped. A second component of the same name hides the first for as long as it exists.
    pub fn register(&self, name: impl Into<String>, required: bool, reason: &str) -> HealthHandle {
        let name = name.into();
        let component =
            Component { ready: false, required, started: false, reason: Some(reason.to_owned()), code: None };
        let id = *self.0.version.borrow();
        self.change(|components| components.entry(name.clone()).or_default().push((id, component)));
        HealthHandle { name, id, health: self.clone() }
    }

    /// Returns all components by name.
    pub fn components(&self) -> BTreeMap<String, Component> {
        let components = self.0.components.lock().unwrap_or_else(PoisonError::into_inner);
        components.iter().filter_map(|(name, all)| Some((name.clone(), all.last()?.1.clone()))).collect()
    }

    /// Returns true if every required component is ready.
    pub fn ready(&self) -> bool {
        self.components().values().all(|component| component.ready || !component.required)
    }

    /// Returns true if every required component has been ready at least once.
    pub(crate) fn started(&self) -> bool {
        self.components().values().all(|component| component.started || !component.required)
    }

    /// Returns a receiver that is notified of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<(u64, Component)>>)) {
        change(&mut self.0.components.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.version.send_modify(|version| *version += 1);
    }
}

/// Handle for updating the health of one component; removes the component when dropped.
#[derive(Debug)]
pub struct HealthHandle {
    name: String,
    id: u64,
    health: Health,
}

impl HealthHandle {
    /// Marks the component as ready.
    pub fn ready(&self) {
        self.set(true, None, None);
    }

    /// Marks the component as not ready, with a reason that holds no secret.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(false, Some(&reason.into()), None);
    }

    /// Marks the component as not ready because of an error, whose text holds no secret.
    pub(crate) fn failed(&self, code: impl Into<Option<ErrorCode>>, error: impl Into<String>) {
        self.set(false, Some(&error.into()), code.into());
    }

    fn set(&self, ready: bool, reason: Option<&String>, code: Option<ErrorCode>) {
        let changed = |component: &Component| {
            (component.ready, component.reason.as_ref(), component.code) != (ready, reason, code)
        };
        let components = self.health.0.components.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = components.get(&self.name).and_then(|all| all.iter().find(|(id, _)| *id == self.id));
        if !ours.is_some_and(|(_, component)| changed(component)) {
            return;
        }
        drop(components);
        self.health.change(|components| {
            let all = components.get_mut(&self.name).into_iter().flatten();
            for (_, component) in all.filter(|(id, _)| *id == self.id) {
                component.ready = ready;
                component.started |= ready;
                component.reason = reason.cloned();
                component.code = code;
            }
        });
    }
}

impl Drop for HealthHandle {
    fn drop(&mut self) {
        self.health.change(|components| {
            if let Some(all) = components.get_mut(&self.name) {
                all.retain(|(id, _)| *id != self.id);
                if all.is_empty() {
                    components.remove(&self.name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_ready_when_every_required_component_is() {
        let health = Health::default();
        let session = health.register("session/web", true, "no token yet");
        let sink = health.register("sink/token", false, "not written yet");
        assert!(!health.ready());
        session.ready();
        assert!(health.ready() && health.started());
        session.failed(ErrorCode::TokenExpired, "the token has expired");
        assert!(!health.ready() && health.started());
        assert_eq!(health.components()["session/web"].describe(), "the token has expired [KW-1302]");
        session.not_ready("no token yet");
        assert_eq!(health.components()["session/web"].describe(), "no token yet");
        drop(session);
        assert!(health.ready());
        drop(sink);
        assert!(health.components().is_empty());
    }

    #[test]
    fn the_newest_component_of_a_name_counts_until_it_is_dropped() {
        let health = Health::default();
        let old = health.register("session/web", true, "no token yet");
        old.ready();
        let new = health.register("session/web", true, "no token yet");
        assert!(!health.ready());
        drop(new);
        assert!(health.ready());
        let new = health.register("session/web", true, "no token yet");
        drop(old);
        assert!(!health.ready());
        new.ready();
        assert!(health.ready());
    }
}
