//! Registry of tasks that wait for a change, by key or prefix.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Write;

/// All waiting tasks. A change wakes those that wait for its key, or for a prefix of it that ends with a slash.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<Arc<str>, Arc<Waiters>>>);

/// Tasks that wait for one key or prefix.
#[derive(Debug)]
struct Waiters {
    prefix: Arc<str>,
    /// Number of tasks; changed only while [`Watchers`] is locked.
    count: AtomicUsize,
    changed: Notify,
}

/// Registration of one waiting task.
#[derive(Debug)]
pub(super) struct Watcher<'a> {
    watchers: &'a Watchers,
    waiters: Arc<Waiters>,
}

impl Watchers {
    pub(super) fn watch(&self, prefix: &str) -> Watcher<'_> {
        let mut all = self.0.lock();
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

    /// Wakes the tasks that wait for one of the keys.
    pub(super) fn wake_keys<'a>(&self, keys: impl IntoIterator<Item = &'a str>) {
        let all = self.0.lock();
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

    /// Wakes all waiting tasks.
    pub(super) fn wake_all(&self) {
        let all = self.0.lock();
        all.values().for_each(|waiters| waiters.changed.notify_waiters());
    }
}

impl Watcher<'_> {
    /// Returns a future that completes at the next change. Once enabled, it misses none.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.waiters.changed.notified()
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut all = self.watchers.0.lock();
        if self.waiters.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            all.remove(&self.waiters.prefix);
        }
    }
}
