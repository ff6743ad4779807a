//! Collects the status of the process, and of the parts that have one, for operators. Never holds a secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::health::Health;
use crate::status::{SessionEntry, StatusDocument};

/// Registry of the parts' status. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StatusRegistry(Arc<Mutex<StatusDocument>>);

impl StatusRegistry {
    /// Changes the status of a part.
    pub fn update(&self, change: impl FnOnce(&mut StatusDocument)) {
        change(&mut self.0.lock());
    }

    /// Returns the status of the process with these sessions, as `GET /agent/v1/status` does. All times are by the clock of the
    /// process.
    pub fn collect(&self, health: &Health, sessions: BTreeMap<String, SessionEntry>) -> StatusDocument {
        let now = health.now();
        StatusDocument {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: Some(now.wall.into()),
            started_at: Some(now.wall_time_of(health.started_at()).into()),
            pid: Some(std::process::id()),
            ready: health.is_ready(),
            sessions,
            components: health.statuses(),
            ..self.0.lock().clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::PlatformEntry;

    #[test]
    fn the_status_of_a_part_stands_in_the_whole_and_is_read_back() {
        let status_registry = StatusRegistry::default();
        let status = || serde_json::to_string(&status_registry.collect(&Health::default(), BTreeMap::new())).unwrap();
        assert!(!status().contains("platform"));
        let upstream = "https://tfe.example.com".to_owned();
        status_registry.update(|status| status.platform = Some(PlatformEntry { upstream, ..PlatformEntry::default() }));
        let platform =
            r#""platform":{"upstream":"https://tfe.example.com","product":null,"release":null,"api_version":null}"#;
        let text = status();
        assert!(text.ends_with(&format!(r#""components":{{}},{platform}}}"#)), "{text}");
        let read: StatusDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        status_registry.update(|status| status.platform = None);
        assert!(!status().contains("platform"));
    }
}
