//! Health of an identity for tools: one component, whatever the number of its resources.

use std::collections::BTreeMap;

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use parking_lot::Mutex;

/// Health of one identity, which the keepers of its tokens share.
#[derive(Debug)]
pub(super) struct IdentityHealth {
    handle: HealthHandle,
    resources: Mutex<BTreeMap<String, ResourceState>>,
}

/// State of the token for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResourceState {
    pub(super) has_token: bool,
    /// Error of the last request.
    pub(super) error: Option<(Option<ErrorCode>, String)>,
}

impl IdentityHealth {
    pub(super) fn new(handle: HealthHandle, resources: &[String]) -> Self {
        let waiting = resources.iter().map(|resource| (resource.clone(), ResourceState::default()));
        Self { handle, resources: Mutex::new(waiting.collect()) }
    }

    /// Sets the state of a resource.
    pub(super) fn set(&self, resource: &str, state: ResourceState) {
        let mut resources = self.resources.lock();
        resources.insert(resource.to_owned(), state);
        let missing = resources.iter().find(|(_, state)| !state.has_token);
        let failing = resources.iter().find_map(|(name, state)| state.error.as_ref().map(|error| (name, error)));
        match (missing, failing) {
            (Some((name, ResourceState { error: Some((code, text)), .. })), _) => {
                self.handle.set_failed(*code, format!("no token for {name}: {text}"));
            }
            (Some((name, _)), _) => self.handle.set_not_ready(format!("no token for {name} yet")),
            (None, Some((name, (code, text)))) => {
                self.handle.set_ready();
                self.handle.warn(*code, format!("the token for {name} cannot be replaced: {text}"));
            }
            (None, None) => {
                self.handle.set_ready();
                self.handle.clear_warning();
            }
        }
    }

    /// Records that a token was obtained.
    pub(super) fn record_update(&self) {
        self.handle.record_update();
    }
}

#[cfg(test)]
mod tests {
    use keyward_telemetry::health::Health;

    use super::*;

    #[test]
    fn an_identity_is_ready_with_a_token_for_each_resource_and_warned_of_one_that_cannot_be_replaced() {
        let registry = Health::default();
        let handle = registry.register("identity/azure", true, "no token yet");
        let health = IdentityHealth::new(handle, &["a".to_owned(), "b".to_owned()]);
        let found = || {
            let entry = registry.statuses().remove("identity/azure").unwrap();
            let text = entry.warning.map(|warning| warning.reason).or(entry.reason);
            (entry.ready, text.unwrap_or_default())
        };
        let token = ResourceState { has_token: true, error: None };
        let error = Some((Some(ErrorCode::IdentityDenied), "no identity".to_owned()));
        health.set("a", token.clone());
        assert_eq!(found(), (false, "no token for b yet".to_owned()));
        health.set("b", ResourceState { has_token: false, error: error.clone() });
        assert_eq!(found(), (false, "no token for b: no identity".to_owned()));
        health.set("b", token.clone());
        assert_eq!(found(), (true, String::new()));
        health.set("a", ResourceState { error, ..token.clone() });
        assert_eq!(found(), (true, "the token for a cannot be replaced: no identity".to_owned()));
        health.set("a", token);
        assert_eq!(found(), (true, String::new()));
    }
}
