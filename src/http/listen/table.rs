//! The open connections of a listener: what each waits for, since when, and which one makes room for a new caller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Limits, Peer};

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The first byte.
    Fresh,
    /// The rest of a request's head.
    Head,
    /// Us: a request is being answered.
    Busy,
    /// The next request.
    Idle,
}

/// One connection's state, written by its task and read by the sweep. A phase is stamped with its time only when the
/// task goes to sleep in it: requests that come one after another cost no reading of a clock but one.
#[derive(Debug)]
pub(super) struct Connection {
    epoch: Instant,
    /// The phase in the two lowest bits, above them the milliseconds since `epoch` plus one; none if not stamped.
    word: AtomicU64,
    /// When a write first found no room, in milliseconds since `epoch` plus one; 0 if none waits.
    stalled: AtomicU64,
    closing: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Connection {
    fn new(epoch: Instant) -> Self {
        let connection = Self {
            epoch,
            word: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            waker: Mutex::new(None),
        };
        connection.word.store(connection.now() << 2, Ordering::Relaxed);
        connection
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX >> 2) + 1
    }

    pub(super) fn phase(&self) -> Phase {
        decode(self.word.load(Ordering::Relaxed)).0
    }

    /// Bytes have come.
    pub(super) fn received(&self) {
        let word = self.word.load(Ordering::Relaxed);
        match decode(word).0 {
            // From the first byte awaited on.
            Phase::Fresh => self.word.store(word | Phase::Head as u64, Ordering::Relaxed),
            Phase::Idle => self.word.store(Phase::Head as u64, Ordering::Relaxed),
            Phase::Head | Phase::Busy => {}
        }
    }

    /// A request's head is whole.
    pub(super) fn busy(&self) {
        self.word.store(Phase::Busy as u64, Ordering::Relaxed);
    }

    /// The answer is with the connection.
    pub(super) fn answered(&self) {
        self.word.store(Phase::Idle as u64, Ordering::Relaxed);
    }

    /// The task goes to sleep. Whether it entered a phase since it last did that has a time-out.
    pub(super) fn pause(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let stamp = word >> 2 == 0 && decode(word).0 != Phase::Busy;
        if stamp {
            self.word.store(word | (self.now() << 2), Ordering::Relaxed);
        }
        stamp && decode(word).0 == Phase::Head
    }

    pub(super) fn write_waits(&self) {
        if self.stalled.load(Ordering::Relaxed) == 0 {
            self.stalled.store(self.now(), Ordering::Relaxed);
        }
    }

    pub(super) fn write_went_on(&self) {
        if self.stalled.load(Ordering::Relaxed) != 0 {
            self.stalled.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the listener stops and this connection is to end after the request in flight.
    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn wake_with(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// When its time is over, in milliseconds since the epoch plus one; `None` while nothing runs out.
    fn deadline(&self, limits: &Limits) -> Option<u64> {
        let stalled = self.stalled.load(Ordering::Relaxed);
        let by_write = (stalled != 0).then(|| stalled.saturating_add(millis(limits.write_timeout)));
        let (phase, since) = decode(self.word.load(Ordering::Relaxed));
        let limit = match phase {
            Phase::Fresh if limits.tls.is_some() => limits.header_timeout,
            Phase::Fresh => limits.first_byte_timeout,
            Phase::Head => limits.header_timeout,
            Phase::Idle => limits.idle_timeout,
            Phase::Busy => return by_write,
        };
        let by_phase = (since != 0).then(|| since.saturating_add(millis(limit)));
        by_write.into_iter().chain(by_phase).min()
    }
}

const fn decode(word: u64) -> (Phase, u64) {
    let phase = match word & 3 {
        0 => Phase::Fresh,
        1 => Phase::Head,
        2 => Phase::Busy,
        _ => Phase::Idle,
    };
    (phase, word >> 2)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The open connections of one listener.
#[derive(Debug)]
pub(super) struct Table {
    epoch: Instant,
    limits: Limits,
    /// Root and ourselves.
    privileged: [u32; 2],
    open: Mutex<HashMap<u64, Entry>>,
    gauge: Option<Gauge>,
    /// Rung when a connection entered a phase whose end is nearer than the next sweep.
    pub(super) attention: Notify,
}

#[derive(Debug)]
struct Entry {
    connection: Arc<Connection>,
    uid: Option<u32>,
    abort: AbortHandle,
}

/// What is to be done about a new caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room.
    Room,
    /// There is, once this connection is closed.
    InPlaceOf(u64),
    /// Every connection is answering a request.
    Full,
}

/// What the choice of a connection to close is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) id: u64,
    pub(super) uid: Option<u32>,
    pub(super) phase: Phase,
    pub(super) since: u64,
}

impl Table {
    pub(super) fn new(limits: Limits, gauge: Option<Gauge>) -> Self {
        Self {
            epoch: Instant::now(),
            limits,
            privileged: [0, rustix::process::geteuid().as_raw()],
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
        if open.len() < self.limits.connections / 2 && open.len() < self.limits.per_user {
            return true;
        }
        let standings: Vec<Standing> = open.iter().map(|(id, entry)| entry.standing(*id)).collect();
        match admit(&standings, peer.uid(), &self.limits, self.privileged) {
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
        let standings: Vec<Standing> = open.iter().map(|(id, entry)| entry.standing(*id)).collect();
        let entry = least_missed(&standings).and_then(|id| open.remove(&id));
        entry.inspect(|entry| entry.abort.abort()).is_some()
    }

    /// Starts a connection's task and enters it.
    pub(super) fn enter(
        self: &Arc<Self>,
        id: u64,
        peer: &Peer,
        start: impl FnOnce(Arc<Connection>, Entered) -> AbortHandle,
    ) {
        let connection = Arc::new(Connection::new(self.epoch));
        // Held over the start: a task that ends at once leaves after it has entered.
        let mut open = self.open();
        if let Some(gauge) = &self.gauge {
            gauge.inc();
        }
        let abort = start(Arc::clone(&connection), Entered { id, table: Arc::clone(self) });
        open.insert(id, Entry { connection, uid: peer.uid(), abort });
    }

    /// Closes what has waited too long. Gives the time of the next look; `None` if there is nothing to look at.
    pub(super) fn sweep(&self) -> Option<Instant> {
        let now = millis(self.epoch.elapsed()) + 1;
        let mut next = now + millis(self.limits.idle_timeout / 4).max(10);
        let mut open = self.open();
        open.retain(|_, entry| match entry.connection.deadline(&self.limits) {
            Some(deadline) if deadline <= now => {
                entry.abort.abort();
                false
            }
            Some(deadline) => {
                next = next.min(deadline);
                true
            }
            None => true,
        });
        (!open.is_empty()).then(|| self.epoch + Duration::from_millis(next))
    }

    /// Tells every connection to end after the request in flight; those that have sent nothing end now.
    pub(super) fn close(&self) {
        for entry in self.open().values() {
            match entry.connection.phase() {
                Phase::Fresh => entry.abort.abort(),
                Phase::Head | Phase::Busy | Phase::Idle => entry.connection.close(),
            }
        }
    }
}

impl Entry {
    fn standing(&self, id: u64) -> Standing {
        let (phase, since) = decode(self.connection.word.load(Ordering::Relaxed));
        Standing { id, uid: self.uid, phase, since }
    }
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

/// Whether a caller is let in, and at whose cost.
fn admit(open: &[Standing], uid: Option<u32>, limits: &Limits, privileged: [u32; 2]) -> Admission {
    let trusted = uid.is_some_and(|uid| privileged.contains(&uid));
    if let Some(uid) = uid
        && !trusted
    {
        let own: Vec<Standing> = open.iter().filter(|it| it.uid == Some(uid)).copied().collect();
        if own.len() >= limits.per_user {
            return least_missed(&own).map_or(Admission::Full, Admission::InPlaceOf);
        }
    }
    let kept = if trusted || uid.is_none() { 0 } else { (limits.connections / 16).min(16) };
    if open.len() < limits.connections - kept {
        return Admission::Room;
    }
    least_missed(open).map_or(Admission::Full, Admission::InPlaceOf)
}

/// Of those that answer no request: one of the user that has most of them, one that has sent nothing whole before
/// one that is between requests, the longest so.
fn least_missed(open: &[Standing]) -> Option<u64> {
    let mut waiting: HashMap<Option<u32>, usize> = HashMap::new();
    let candidates = || open.iter().filter(|it| it.phase != Phase::Busy && it.since != 0);
    for it in candidates() {
        *waiting.entry(it.uid).or_default() += 1;
    }
    let rank = |it: &&Standing| {
        let count = waiting.get(&it.uid).copied().unwrap_or(0);
        (std::cmp::Reverse(count), it.phase == Phase::Idle, it.since, it.id)
    };
    candidates().min_by_key(rank).map(|it| it.id)
}

#[cfg(test)]
mod tests;
