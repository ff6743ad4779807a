//! The open connections of a listener.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection_state::{Connection, Phase, millis};
use super::eviction::{Admission, Newcomer, Standing, admit, least_missed};
use super::peer_group::{Caller, CallerGroup};
use super::{Limits, Peer};

/// The open connections of one listener.
#[derive(Debug)]
pub(super) struct Table {
    epoch: Instant,
    turns: Arc<AtomicU64>,
    limits: Limits,
    /// The listener's address, over TCP.
    local: Option<SocketAddr>,
    open: Mutex<HashMap<u64, Entry>>,
    gauge: Option<Gauge>,
    /// Rung when a connection entered a phase whose end is nearer than the next sweep.
    pub(super) attention: Notify,
}

#[derive(Debug)]
struct Entry {
    connection: Arc<Connection>,
    caller: Caller,
    /// Asked for once connections are short.
    group: Option<CallerGroup>,
    abort: AbortHandle,
    /// The phase and stamp at the last sweep, and the time of the first sweep that saw them.
    seen: (Phase, u64, u64),
}

impl Table {
    pub(super) fn new(limits: Limits, local: Option<SocketAddr>, gauge: Option<Gauge>) -> Self {
        Self {
            epoch: Instant::now(),
            turns: Arc::default(),
            limits,
            local,
            open: Mutex::default(),
            gauge,
            attention: Notify::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for a caller; false if there is none.
    pub(super) fn make_room(&self, peer: &Peer) -> bool {
        let mut open = self.open();
        let capped = peer.uid().is_some();
        // Up to here nobody asks who they are.
        let few = if capped { self.limits.per_user } else { self.limits.connections }.min(self.limits.connections / 2);
        if open.len() < few {
            return true;
        }
        let group = Caller::new(*peer, self.local).group();
        let trusted = group.is_trusted();
        let new = Newcomer { group, trusted, capped: capped && !trusted };
        match admit(&standings(&mut open), new, &self.limits) {
            Admission::Room => true,
            Admission::InPlaceOf(id) => {
                if let Some(entry) = open.remove(&id) {
                    entry.abort.abort();
                }
                true
            }
            Admission::Full => false,
        }
    }

    /// Closes the connection that can best be done without, to have its descriptor; false if all answer requests.
    pub(super) fn free_one(&self) -> bool {
        let mut open = self.open();
        let standings = standings(&mut open);
        let entry = least_missed(&standings).and_then(|(id, _)| open.remove(&id));
        entry.inspect(|entry| entry.abort.abort()).is_some()
    }

    /// Starts a connection's task and enters it.
    pub(super) fn enter(
        self: &Arc<Self>,
        id: u64,
        peer: &Peer,
        start: impl FnOnce(Arc<Connection>, Entered) -> AbortHandle,
    ) {
        let connection = Arc::new(Connection::new(self.epoch, Arc::clone(&self.turns)));
        // Held over the start: a task that ends at once leaves after it has entered.
        let mut open = self.open();
        if let Some(gauge) = &self.gauge {
            gauge.inc();
        }
        let abort = start(Arc::clone(&connection), Entered { id, table: Arc::clone(self) });
        let caller = Caller::new(*peer, self.local);
        open.insert(id, Entry { connection, caller, group: None, abort, seen: (Phase::Fresh, 0, 0) });
    }

    /// Closes what has waited too long. Gives the time of the next look; `None` if there is nothing to look at.
    pub(super) fn sweep(&self) -> Option<Instant> {
        let now = millis(self.epoch.elapsed()) + 1;
        let mut next = now + millis(self.limits.idle_timeout / 4).max(10);
        let mut open = self.open();
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

    /// Tells every connection to end after the request in flight, or after the first if none has come.
    pub(super) fn close(&self) {
        for entry in self.open().values() {
            entry.connection.close();
        }
    }

    /// Tells every connection to end after the request in flight, or after the next one.
    pub(super) fn linger(&self) {
        for entry in self.open().values() {
            entry.connection.linger();
        }
    }

    /// Ends connections that have sent nothing.
    pub(super) fn close_silent(&self) {
        for entry in self.open().values().filter(|entry| entry.connection.phase().0 == Phase::Fresh) {
            entry.abort.abort();
        }
    }
}

fn standings(open: &mut HashMap<u64, Entry>) -> Vec<Standing> {
    let standing = |(id, entry): (&u64, &mut Entry)| {
        let group = *entry.group.get_or_insert_with(|| entry.caller.group());
        Standing { id: *id, group, waits: entry.connection.waits(), turn: entry.connection.turn() }
    };
    open.iter_mut().map(standing).collect()
}

/// Held by a connection's task; leaves the table when dropped.
#[derive(Debug)]
pub(super) struct Entered {
    id: u64,
    table: Arc<Table>,
}

impl Entered {
    /// Asks for a sweep soon.
    pub(super) fn attention(&self) {
        self.table.attention.notify_one();
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.table.open().remove(&self.id);
        if let Some(gauge) = &self.table.gauge {
            gauge.dec();
        }
    }
}
