//! Those who wait for a change, by the key or prefix that they wait on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::Write;

/// Everyone who waits. A key wakes those who wait on it, or on a prefix of it that ends with a slash.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Waiters>>);

#[derive(Debug, Default)]
struct Waiters {
    count: usize,
    changed: Arc<Notify>,
}

/// One who waits, from the moment it was made.
#[derive(Debug)]
pub(super) struct Watcher<'a> {
    watchers: &'a Watchers,
    prefix: String,
    pub(super) changed: Arc<Notify>,
}

impl Watchers {
    pub(super) fn watch(&self, prefix: &str) -> Watcher<'_> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiters = all.entry(prefix.to_owned()).or_default();
        waiters.count += 1;
        Watcher { watchers: self, prefix: prefix.to_owned(), changed: Arc::clone(&waiters.changed) }
    }

    pub(super) fn wake(&self, writes: &[Write]) {
        self.wake_keys(writes.iter().map(|write| write.key().as_str()));
    }

    /// Those who wait on one of the keys.
    pub(super) fn wake_keys<'a>(&self, keys: impl IntoIterator<Item = &'a str>) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return;
        }
        for key in keys {
            let prefixes = key.match_indices('/').map(|(slash, _)| &key[..=slash]);
            for watched in prefixes.chain([key]) {
                if let Some(waiters) = all.get(watched) {
                    waiters.changed.notify_waiters();
                }
            }
        }
    }

    /// Whoever waits, whatever for.
    pub(super) fn wake_all(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().for_each(|waiters| waiters.changed.notify_waiters());
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut all = self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiters) = all.get_mut(&self.prefix) {
            waiters.count -= 1;
            if waiters.count == 0 {
                all.remove(&self.prefix);
            }
        }
    }
}
