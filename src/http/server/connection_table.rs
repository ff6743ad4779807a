//! Table of a listener's open connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection_metrics::ConnectionMetrics;
use super::connection_state::{ConnectionState, Phase, millis};
use super::eviction::{Candidate, EvictionDecision, NewCaller, decide, pick_victim};
use super::peer_group::CallerGroup;
use super::{ListenerLimits, Peer};

/// Table of a listener's open connections.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    epoch: Instant,
    use_counter: Arc<AtomicU64>,
    limits: ListenerLimits,
    open: Mutex<HashMap<u64, Entry>>,
    gauge: Option<Gauge>,
    /// Notified when a connection enters a phase that ends before the next sweep.
    pub(super) sweep_requested: Notify,
}

#[derive(Debug)]
struct Entry {
    connection: Arc<ConnectionState>,
    group: CallerGroup,
    abort: AbortHandle,
    /// Phase and stamp at the last sweep, and the time of the first sweep that saw them.
    seen: (Phase, u64, u64),
}

impl ConnectionTable {
    pub(super) fn new(limits: ListenerLimits, gauge: Option<Gauge>) -> Self {
        Self {
            epoch: Instant::now(),
            use_counter: Arc::default(),
            limits,
            open: Mutex::default(),
            gauge,
            sweep_requested: Notify::new(),
        }
    }

    /// Admits a new connection, closing another if needed; returns false if none can be closed.
    pub(super) fn make_room(&self, peer: &Peer) -> bool {
        let mut open = self.open.lock();
        let capped = peer.uid().is_some();
        // Below this number each caller is admitted.
        let few = if capped { self.limits.per_user } else { self.limits.connections }.min(self.limits.connections / 2);
        if open.len() < few {
            return true;
        }
        let group = peer.group();
        let trusted = group.is_trusted();
        let new = NewCaller { group, trusted, capped: capped && !trusted };
        match decide(&candidates(&open), new, &self.limits) {
            EvictionDecision::Admit => true,
            EvictionDecision::Evict(id) => {
                if let Some(entry) = open.remove(&id) {
                    entry.abort.abort();
                }
                true
            }
            EvictionDecision::Reject => false,
        }
    }

    /// Closes one idle connection to free its descriptor; returns false if all serve requests.
    pub(super) fn evict_one(&self) -> bool {
        let mut open = self.open.lock();
        let candidates = candidates(&open);
        let entry = pick_victim(&candidates).and_then(|(id, _)| open.remove(&id));
        entry.inspect(|entry| entry.abort.abort()).is_some()
    }

    /// Starts a connection's task and adds it to the table.
    pub(super) fn enter(
        self: &Arc<Self>,
        id: u64,
        peer: &Peer,
        start: impl FnOnce(Arc<ConnectionState>, ConnectionGuard) -> AbortHandle,
    ) {
        let connection = Arc::new(ConnectionState::new(self.epoch, Arc::clone(&self.use_counter)));
        // The lock is held over the start: a task that ends at once is removed after it was added.
        let mut open = self.open.lock();
        if let Some(gauge) = &self.gauge {
            gauge.inc();
        }
        let abort = start(Arc::clone(&connection), ConnectionGuard { id, table: Arc::clone(self) });
        open.insert(id, Entry { connection, group: peer.group(), abort, seen: (Phase::Fresh, 0, 0) });
    }

    /// Closes connections past their deadline. Returns the time of the next sweep; `None` without connections.
    pub(super) fn sweep(&self) -> Option<Instant> {
        let now = millis(self.epoch.elapsed()) + 1;
        let mut next = now + millis(self.limits.idle_timeout / 4).max(10);
        let mut open = self.open.lock();
        open.retain(|_, entry| {
            let (phase, stamp) = entry.connection.phase();
            if (phase, stamp) != (entry.seen.0, entry.seen.1) {
                entry.seen = (phase, stamp, now);
            }
            match entry.connection.deadline(&self.limits, entry.seen.2) {
                Some(deadline) if deadline <= now => {
                    entry.abort.abort();
                    false
                }
                Some(deadline) => {
                    next = next.min(deadline);
                    true
                }
                None => true,
            }
        });
        (!open.is_empty()).then(|| self.epoch + Duration::from_millis(next))
    }

    /// Closes every connection after the request in flight, or after its first request.
    pub(super) fn close(&self) {
        for entry in self.open.lock().values() {
            entry.connection.close();
        }
    }

    /// Closes every connection after the request in flight, or after the next one.
    pub(super) fn linger(&self) {
        for entry in self.open.lock().values() {
            entry.connection.linger();
        }
    }

    /// Aborts connections that have sent nothing.
    pub(super) fn close_silent(&self) {
        for entry in self.open.lock().values().filter(|entry| entry.connection.phase().0 == Phase::Fresh) {
            entry.abort.abort();
        }
    }
}

fn candidates(open: &HashMap<u64, Entry>) -> Vec<Candidate> {
    let candidate = |(id, entry): (&u64, &Entry)| Candidate {
        id: *id,
        group: entry.group,
        evictable: entry.connection.is_evictable(),
        last_use: entry.connection.last_use_order(),
    };
    open.iter().map(candidate).collect()
}

/// Entry of a connection in its listener's table, and the listener's counters.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) entered: ConnectionGuard,
    pub(super) counters: Arc<ConnectionMetrics>,
}

/// Guard of a connection's entry, held by its task; removes the entry when dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    id: u64,
    table: Arc<ConnectionTable>,
}

impl ConnectionGuard {
    /// Requests a sweep soon.
    pub(super) fn request_sweep(&self) {
        self.table.sweep_requested.notify_one();
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.table.open.lock().remove(&self.id);
        if let Some(gauge) = &self.table.gauge {
            gauge.dec();
        }
    }
}
