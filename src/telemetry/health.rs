//! Tracks the readiness of components; the process is ready when all required components are.

mod component;

use std::collections::BTreeMap;
use std::sync::Arc;

use keyward_machine::clock::{Clock, ClockReading};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error_code::ErrorCode;
use crate::status::{CertificateEntry, ComponentEntry};
use component::Registration;

pub use component::Component;

/// Health of all components of the process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Registrations by name, oldest first: during a replacement there are two, and the newest counts.
    components: Mutex<BTreeMap<String, Vec<Registration>>>,
    version: watch::Sender<u64>,
    clock: Clock,
    /// Creation of this registry: the start of the process.
    started_at: ClockReading,
}

impl Default for Inner {
    fn default() -> Self {
        let clock = Clock::default();
        let started_at = clock.now();
        Self { components: Mutex::default(), version: watch::Sender::default(), clock, started_at }
    }
}

impl Health {
    /// Registers a component that is not ready yet, with a name such as `session/web` or `sink/token`. It is removed
    /// when the handle is dropped. A second component of the same name hides the first for as long as it exists.
    pub fn register(&self, name: impl Into<String>, required: bool, reason: &str) -> HealthHandle {
        let name = name.into();
        let id = *self.0.version.borrow();
        let registration = Registration::new(id, required, reason, self.now());
        self.change(|components| components.entry(name.clone()).or_default().push(registration));
        HealthHandle { name, id, health: self.clone() }
    }

    /// Returns all components by name.
    pub fn components(&self) -> BTreeMap<String, Component> {
        self.collect(|registration| registration.component.clone())
    }

    /// Returns all components by name, each with what operators see of it.
    pub fn statuses(&self) -> BTreeMap<String, ComponentEntry> {
        let now = self.now();
        self.collect(|registration| registration.status(now))
    }

    /// Changes if readiness depends on a component, as a reload may.
    pub fn set_required(&self, name: &str, required: bool) {
        self.change(|components| {
            if let Some(newest) = components.get_mut(name).and_then(|all| all.last_mut()) {
                newest.component.required = required;
            }
        });
    }

    fn collect<T>(&self, part: impl Fn(&Registration) -> T) -> BTreeMap<String, T> {
        let components = self.0.components.lock();
        components.iter().filter_map(|(name, all)| Some((name.clone(), part(all.last()?)))).collect()
    }

    /// Returns the first `limit` required components that are not ready, by name, and the number of all of them.
    pub fn waiting(&self, limit: usize) -> (Vec<(String, Component)>, usize) {
        let components = self.0.components.lock();
        let newest = components.iter().filter_map(|(name, all)| Some((name, &all.last()?.component)));
        let mut waiting = newest.filter(|(_, component)| component.required && !component.ready);
        let first = waiting.by_ref().take(limit).map(|(name, component)| (name.clone(), component.clone()));
        let first: Vec<_> = first.collect();
        let count = first.len() + waiting.count();
        (first, count)
    }

    /// Returns true if `holds` does for every component.
    pub fn all(&self, holds: impl Fn(&str, &Component) -> bool) -> bool {
        let components = self.0.components.lock();
        components.iter().all(|(name, all)| all.last().is_none_or(|newest| holds(name, &newest.component)))
    }

    /// Returns true if every required component is ready.
    pub fn is_ready(&self) -> bool {
        self.all(|_, component| component.ready || !component.required)
    }

    /// Returns true if every required component has been ready at least once.
    pub fn is_started(&self) -> bool {
        self.all(|_, component| component.started || !component.required)
    }

    /// Returns a receiver that is notified of every change of readiness.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Reads the clock that the times of components are by.
    pub fn now(&self) -> ClockReading {
        self.0.clock.now()
    }

    /// Returns the start of the process.
    pub fn started_at(&self) -> ClockReading {
        self.0.started_at
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<Registration>>)) {
        change(&mut self.0.components.lock());
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
    pub fn set_ready(&self) {
        self.set(true, None, None);
    }

    /// Marks the component as not ready, with a reason that holds no secret.
    pub fn set_not_ready(&self, reason: impl Into<String>) {
        self.set(false, Some(reason.into()), None);
    }

    /// Marks the component as not ready because of an error, whose text holds no secret.
    pub fn set_failed(&self, code: impl Into<Option<ErrorCode>>, error: impl Into<String>) {
        self.set(false, Some(error.into()), code.into());
    }

    /// Sets the file, address or program that the component is about.
    pub fn set_target(&self, target: impl Into<String>) {
        let target = target.into();
        self.modify(|registration| registration.target = Some(target));
    }

    /// Sets what operators should know of it although nothing is wrong; `None` for nothing. The text holds no secret.
    pub fn set_note(&self, note: Option<String>) {
        self.modify(|registration| registration.note = note);
    }

    /// Sets the certificate that the component keeps; `None` for none.
    pub fn set_certificate(&self, certificate: Option<CertificateEntry>) {
        self.modify(|registration| registration.certificate = certificate);
    }

    /// Records a success, such as a write.
    pub fn record_update(&self) {
        let now = self.health.now();
        self.modify(|registration| registration.updated = Some(now));
    }

    /// Sets the time of the next attempt after a failure; the next change of readiness clears it.
    pub fn set_retry_at(&self, at: ClockReading) {
        self.modify(|registration| registration.next_try = Some(at));
    }

    /// Records that the result of an earlier success is still in use, although the component is not ready.
    pub fn keep_previous(&self, is_kept: bool) {
        self.modify(|registration| registration.keeps_previous = is_kept && !registration.component.ready);
    }

    /// Warns of an error that may make the component fail later; it stays ready. The text holds no secret.
    pub fn warn(&self, code: impl Into<Option<ErrorCode>>, reason: impl Into<String>) {
        let code = code.into();
        let reason = reason.into();
        let now = self.health.now();
        self.modify(|registration| registration.warn(code, reason, now));
    }

    /// Withdraws the warning.
    pub fn clear_warning(&self) {
        self.modify(|registration| registration.warning = None);
    }

    fn set(&self, ready: bool, reason: Option<String>, code: Option<ErrorCode>) {
        let now = self.health.now();
        let is_changed = self.modify(|registration| registration.set(ready, reason, code, now));
        if is_changed == Some(true) {
            self.health.0.version.send_modify(|version| *version += 1);
        }
    }

    fn modify<T>(&self, modify: impl FnOnce(&mut Registration) -> T) -> Option<T> {
        let mut components = self.health.0.components.lock();
        components.get_mut(&self.name)?.iter_mut().find(|registration| registration.id == self.id).map(modify)
    }
}

impl Drop for HealthHandle {
    fn drop(&mut self) {
        self.health.change(|components| {
            if let Some(all) = components.get_mut(&self.name) {
                all.retain(|registration| registration.id != self.id);
                if all.is_empty() {
                    components.remove(&self.name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
