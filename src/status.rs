//! What each session is doing, in words and times that an operator can read. Never a secret.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::health::{Component, Health};

/// Where the parts post what they are doing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StatusRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// By name, oldest posting first: while one session takes another's place both may be there, and the newest speaks.
    sessions: BTreeMap<String, Vec<(u64, SessionStatus)>>,
    /// How many postings were made so far.
    made: u64,
    reload_error: Option<String>,
    platform: Option<PlatformStatus>,
}

/// What is known of the platform that the gateway leads to: each part once the platform has told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlatformStatus {
    /// Its origin, such as `https://app.terraform.io`.
    pub upstream: String,
    /// `hosted` or `self-managed`.
    pub product: Option<&'static str>,
    /// The release of a self-managed one.
    pub release: Option<String>,
    /// The version of its API, such as `2.6`.
    pub api_version: Option<String>,
}

/// What one session is doing. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SessionStatus {
    /// Where the machine's identity comes from, such as `metadata service (system-assigned)`.
    pub identity: String,
    /// The secrets server's address.
    pub server: String,
    /// The role that it logs in to.
    pub role: String,
    /// Whether there is a token to serve.
    pub serving: bool,
    /// Names that the server gave the token.
    pub policies: Vec<String>,
    /// Whether the token can be renewed.
    pub renewable: bool,
    /// When the token ends; absent for one that never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// What comes next: `renew`, `login`, `wait`.
    pub next_step: String,
    /// When that is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_at: Option<String>,
    /// When the server was last asked about the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// The last failure, with its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The status of the process, as `GET /agent/v1/status` tells it.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    ready: bool,
    /// The sessions that the caller may see.
    sessions: BTreeMap<String, SessionStatus>,
    components: BTreeMap<String, Component>,
    /// The platform of the gateway; absent where there is no gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<PlatformStatus>,
    /// Why the last reload of the configuration failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reload_error: Option<String>,
}

impl Status {
    /// The status now, with these sessions.
    pub fn new(status_registry: &StatusRegistry, health: &Health, sessions: BTreeMap<String, SessionStatus>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            ready: health.ready(),
            sessions,
            components: health.components(),
            platform: status_registry.platform(),
            reload_error: status_registry.reload_error(),
        }
    }
}

impl StatusRegistry {
    /// A place for one session of this name. It shows nothing before its first post, and then stands before those that
    /// were made earlier under the same name.
    pub fn register(&self, name: impl Into<String>) -> StatusHandle {
        let mut posted = self.lock();
        posted.made += 1;
        StatusHandle { name: name.into(), id: posted.made, status_registry: self.clone() }
    }

    /// Every session, by name.
    pub fn sessions(&self) -> BTreeMap<String, SessionStatus> {
        let posted = self.lock();
        posted.sessions.iter().filter_map(|(name, all)| Some((name.clone(), all.last()?.1.clone()))).collect()
    }

    /// Posts how the last reload of the configuration went: why it failed, or that it did not.
    pub fn record_reload(&self, error: Option<String>) {
        self.lock().reload_error = error;
    }

    /// Why the last reload failed, if it did.
    pub fn reload_error(&self) -> Option<String> {
        self.lock().reload_error.clone()
    }

    /// Posts what is known of the gateway's platform; `None` where there is no gateway.
    pub fn set_platform(&self, platform: Option<PlatformStatus>) {
        self.lock().platform = platform;
    }

    /// What is known of the gateway's platform, if there is a gateway.
    pub fn platform(&self) -> Option<PlatformStatus> {
        self.lock().platform.clone()
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session's place on a status_registry.
#[derive(Debug)]
pub struct StatusHandle {
    name: String,
    id: u64,
    status_registry: StatusRegistry,
}

impl StatusHandle {
    /// Posts what the session is doing, in place of what it posted before. Says whether that is what the status_registry shows.
    pub fn update(&self, session: SessionStatus) -> bool {
        let mut posted = self.status_registry.lock();
        let all = posted.sessions.entry(self.name.clone()).or_default();
        match all.binary_search_by_key(&self.id, |(id, _)| *id) {
            Ok(at) => all[at].1 = session,
            Err(at) => all.insert(at, (self.id, session)),
        }
        all.last().is_some_and(|(id, _)| *id == self.id)
    }

    /// Takes the session off the status_registry. Says whether none of its name is left there.
    pub fn remove(&self) -> bool {
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
    fn of_one_name_the_newest_that_has_posted_speaks_and_the_older_one_takes_only_its_own_away() {
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
