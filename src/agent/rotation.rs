//! Requests to replace a certificate at once: from callers of the local API to the task that keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use keyward_credentials::credential_watch::{RefreshRequest, RefreshSignal};
use keyward_machine::clock::Clock;
use parking_lot::Mutex;

/// Registry of the certificates that can be replaced on request. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct RotationRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// Certificates by name, oldest first: during a replacement by a reload there are two, and the newest counts.
    certificates: BTreeMap<String, Vec<Registration>>,
    /// Number of handles created so far.
    created: u64,
}

#[derive(Debug)]
struct Registration {
    id: u64,
    /// Session that requests the certificate.
    session: String,
    signal: RefreshSignal,
    /// Result of the last rotation.
    outcome: Option<RotationOutcome>,
}

/// Result of a rotation: the new certificate, or a text that says what has failed and which certificate is in use. It holds no secret.
pub type RotationOutcome = Result<RotatedCertificate, String>;

/// A certificate that took the place of another one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RotatedCertificate {
    /// Its serial number.
    pub serial: String,
    /// Its end, in RFC 3339.
    pub expires: String,
}

/// A certificate, for those that request its rotation.
#[derive(Debug, Clone)]
pub struct Rotation {
    name: String,
    id: u64,
    session: String,
    signal: RefreshSignal,
    registry: RotationRegistry,
}

/// Handle of the task that keeps a certificate; removes it from the registry when dropped.
#[derive(Debug)]
pub struct RotationHandle {
    name: String,
    id: u64,
    signal: RefreshSignal,
    registry: RotationRegistry,
}

impl RotationRegistry {
    /// Registers a certificate of this name, which a session requests. It hides older ones of the same name.
    pub fn register(&self, name: &str, session: &str, clock: Clock) -> RotationHandle {
        let signal = RefreshSignal::new(clock);
        let mut state = self.0.lock();
        state.created += 1;
        let id = state.created;
        let registration = Registration { id, session: session.to_owned(), signal: signal.clone(), outcome: None };
        state.certificates.entry(name.to_owned()).or_default().push(registration);
        RotationHandle { name: name.to_owned(), id, signal, registry: self.clone() }
    }

    /// Returns the certificates whose session is permitted, by name.
    pub fn certificates(&self, permits: impl Fn(&str) -> bool) -> Vec<Rotation> {
        let state = self.0.lock();
        let newest = state.certificates.iter().filter_map(|(name, all)| Some((name, all.last()?)));
        let permitted = newest.filter(|(_, registration)| permits(&registration.session));
        let rotation = |(name, Registration { id, session, signal, .. }): (&String, &Registration)| Rotation {
            name: name.clone(),
            id: *id,
            session: session.clone(),
            signal: signal.clone(),
            registry: self.clone(),
        };
        permitted.map(rotation).collect()
    }
}

impl Rotation {
    /// Returns the certificate's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the session that requests it.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Requests a rotation. Requests that are made before it is complete join it.
    pub fn request(&self) -> RefreshRequest {
        self.signal.request()
    }

    /// Waits until the requested rotation is complete. `None` if a reload has replaced or removed the certificate.
    pub async fn outcome(&self) -> Option<RotationOutcome> {
        self.signal.wait().await;
        self.registry.0.lock().find(&self.name, self.id)?.outcome.clone()
    }
}

impl RotationHandle {
    /// Waits for a request.
    pub(crate) async fn requested(&self) {
        self.signal.requested().await;
    }

    /// Completes the pending request, and tells its callers the outcome.
    pub(crate) fn complete(&self, outcome: RotationOutcome) {
        if let Some(own) = self.registry.0.lock().find(&self.name, self.id) {
            own.outcome = Some(outcome);
        }
        self.signal.complete();
    }
}

impl RegistryState {
    fn find(&mut self, name: &str, id: u64) -> Option<&mut Registration> {
        self.certificates.get_mut(name)?.iter_mut().find(|registration| registration.id == id)
    }
}

impl Drop for RotationHandle {
    fn drop(&mut self) {
        let mut state = self.registry.0.lock();
        if let Some(all) = state.certificates.get_mut(&self.name) {
            all.retain(|registration| registration.id != self.id);
            if all.is_empty() {
                state.certificates.remove(&self.name);
            }
        }
        drop(state);
        // Nobody completes what is pending any more.
        self.signal.complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(serial: &str) -> RotatedCertificate {
        RotatedCertificate { serial: serial.to_owned(), expires: String::new() }
    }

    #[tokio::test]
    async fn a_request_gets_the_outcome_and_one_of_a_certificate_that_is_gone_gets_none() {
        let registry = RotationRegistry::default();
        let web = registry.register("web", "main", Clock::default());
        let other = registry.register("other", "second", Clock::default());
        let names = |session: &'static str| -> Vec<String> {
            registry.certificates(|name| name == session).iter().map(|found| found.name().to_owned()).collect()
        };
        assert_eq!((names("main"), names("second")), (vec!["web".to_owned()], vec!["other".to_owned()]));
        assert_eq!(names("none"), Vec::<String>::new());
        let rotation = registry.certificates(|name| name == "main").remove(0);
        assert_eq!(rotation.request(), RefreshRequest::Accepted);
        web.requested().await;
        web.complete(Ok(rotated("1")));
        assert_eq!(rotation.outcome().await, Some(Ok(rotated("1"))));
        assert_eq!(rotation.request(), RefreshRequest::Accepted);
        drop(web);
        assert_eq!(rotation.outcome().await, None);
        drop(other);
        assert!(registry.certificates(|_| true).is_empty());
    }

    #[tokio::test]
    async fn the_newest_certificate_of_a_name_counts() {
        let registry = RotationRegistry::default();
        let old = registry.register("web", "main", Clock::default());
        let new = registry.register("web", "main", Clock::default());
        let rotation = registry.certificates(|_| true).remove(0);
        rotation.request();
        new.complete(Ok(rotated("2")));
        old.complete(Err("too late".to_owned()));
        assert_eq!(rotation.outcome().await, Some(Ok(rotated("2"))));
        drop(old);
        let newer = registry.register("web", "main", Clock::default());
        newer.complete(Ok(rotated("3")));
        assert_eq!(rotation.outcome().await, Some(Ok(rotated("2"))), "that of the certificate that was asked");
        drop(new);
        assert_eq!(rotation.outcome().await, None);
        assert_eq!(registry.certificates(|_| true).len(), 1);
    }
}
