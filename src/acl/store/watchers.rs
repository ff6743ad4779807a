//! Those who wait for a change, by the key or prefix that they wait on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Write;

/// Everyone who waits. A key wakes those who wait on it, or on a prefix of it that ends with a slash.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<Arc<str>, Arc<Waiters>>>);

/// Those who wait on one key or prefix.
#[derive(Debug)]
struct Waiters {
    prefix: Arc<str>,
    /// How many there are; changed while [`Watchers`] is locked.
    count: AtomicUsize,
    changed: Notify,
}

/// One who waits, from the moment it was made.
#[derive(Debug)]
pub(super) struct Watcher<'a> {
    watchers: &'a Watchers,
    waiters: Arc<Waiters>,
}

impl Watchers {
    pub(super) fn watch(&self, prefix: &str) -> Watcher<'_> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiters = if let Some(waiters) = all.get(prefix) {
            Arc::clone(waiters)
        } else {
            let prefix: Arc<str> = prefix.into();
            let waiters = Waiters { prefix: Arc::clone(&prefix), count: AtomicUsize::new(0), changed: Notify::new() };
            Arc::clone(all.entry(prefix).or_insert(Arc::new(waiters)))
        };
        waiters.count.fetch_add(1, Ordering::Relaxed);
        Watcher { watchers: self, waiters }
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

impl Watcher<'_> {
    /// Ready once something has changed that is waited for. Enabled, it misses nothing from then on.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.waiters.changed.notified()
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut all = self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.waiters.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            all.remove(&self.waiters.prefix);
        }
    }
}
