//! Shares the connections to an upstream: no caller gets more than half, and the last ones are reserved for root and
//! the process's own user.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ForwardError, UpstreamRecorder};
use crate::server::CallerGroup;

/// Slots of one upstream, one for each connection that serves a request.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    /// Maximum of all callers.
    max: usize,
    /// Maximum for one caller.
    share: usize,
    /// Slots reserved for root and the process's own user: a sixteenth, at most 16.
    reserve: usize,
    /// Longest wait for a slot.
    wait: Duration,
    /// Records the waits for a slot.
    recorder: Option<UpstreamRecorder>,
    state: Mutex<State>,
    /// Task that ends waits; aborted with the slots.
    expiry: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    /// Slots that each group holds. A list: few groups hold one at a time.
    by_group: Vec<(CallerGroup, usize)>,
    /// Waiting callers, the longest first.
    waiting: VecDeque<Waiter>,
    /// A task ends their waits in time.
    is_watched: bool,
}

#[derive(Debug)]
struct Waiter {
    caller: CallerGroup,
    until: Instant,
    give: oneshot::Sender<ConnectionSlot>,
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    /// The caller that holds it; `None` if it is released.
    holder: Option<CallerGroup>,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize, wait: Duration, recorder: Option<UpstreamRecorder>) -> Self {
        let (share, reserve) = ((max / 2).max(1), (max / 16).min(16));
        Self { max, share, reserve, wait, recorder, state: Mutex::default(), expiry: Mutex::default() }
    }

    /// Takes a slot for this caller, waiting if there is none.
    pub(super) async fn take(self: &Arc<Self>, caller: CallerGroup) -> Result<ConnectionSlot, ForwardError> {
        let (slot, until) = {
            let mut state = self.state.lock();
            if self.admits(&state, caller) {
                return Ok(state.enter(self, caller));
            }
            let (give, slot) = oneshot::channel();
            let until = Instant::now() + self.wait;
            state.waiting.push_back(Waiter { caller, until, give });
            if !std::mem::replace(&mut state.is_watched, true) {
                self.spawn_expiry();
            }
            (slot, until)
        };
        let slot = slot.await;
        self.recorder.iter().for_each(|recorder| {
            let remaining = until.saturating_duration_since(Instant::now());
            recorder.record_wait(self.wait.saturating_sub(remaining));
        });
        slot.map_err(|_| {
            let state = self.state.lock();
            let all = state.in_use >= self.max || state.held_by(caller) < self.share;
            if all { ForwardError::Busy(self.max) } else { ForwardError::ShareBusy(self.share) }
        })
    }

    /// Returns the number of slots in use.
    pub(super) fn in_use(&self) -> usize {
        self.state.lock().in_use
    }

    /// Starts the task that ends waits: one timer for all, as with many callers most requests wait for a moment.
    fn spawn_expiry(self: &Arc<Self>) {
        let slots = Arc::downgrade(self);
        let mut expiry = self.expiry.lock();
        while expiry.try_join_next().is_some() {}
        expiry.spawn(async move {
            // The runtime of a listener's thread may end before the slots do.
            let slots = scopeguard::guard(slots, |slots: Weak<Self>| {
                if let Some(slots) = slots.upgrade() {
                    slots.state.lock().is_watched = false;
                }
            });
            while let Some(next) = slots.upgrade().and_then(|slots| slots.expire()) {
                tokio::time::sleep_until(next).await;
            }
        });
    }

    /// Ends the waits whose time is over, by dropping their senders. Returns the end of the next one.
    fn expire(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.waiting.retain(|waiter| waiter.until > now && !waiter.give.is_closed());
        state.is_watched = !state.waiting.is_empty();
        state.waiting.front().map(|waiter| waiter.until)
    }

    fn admits(&self, state: &State, caller: CallerGroup) -> bool {
        // No caller can exceed its share or reach the reserve yet.
        if state.in_use < self.share {
            return true;
        }
        let max = if caller.is_trusted() { self.max } else { self.max - self.reserve };
        state.in_use < max && state.held_by(caller) < self.share
    }

    /// Releases a caller's slot and hands it to the longest waiting caller that may have it.
    fn release(self: &Arc<Self>, holder: CallerGroup) {
        let mut state = self.state.lock();
        state.leave(holder);
        while let Some(next) =
            state.waiting.iter().position(|next| next.give.is_closed() || self.admits(&state, next.caller))
        {
            let Some(Waiter { caller, give, .. }) = state.waiting.remove(next) else { return };
            if give.is_closed() {
                continue;
            }
            let slot = state.enter(self, caller);
            if let Err(mut slot) = give.send(slot) {
                // The receiver was dropped meanwhile. The lock is held, so the slot must not release itself.
                slot.holder = None;
                state.leave(caller);
            }
        }
    }
}

impl State {
    fn held_by(&self, caller: CallerGroup) -> usize {
        self.by_group.iter().find(|(group, _)| *group == caller).map_or(0, |(_, slots)| *slots)
    }

    fn enter(&mut self, slots: &Arc<ConnectionSlots>, caller: CallerGroup) -> ConnectionSlot {
        self.in_use += 1;
        match self.by_group.iter_mut().find(|(group, _)| *group == caller) {
            Some((_, slots)) => *slots += 1,
            None => self.by_group.push((caller, 1)),
        }
        ConnectionSlot { slots: Arc::clone(slots), holder: Some(caller) }
    }

    fn leave(&mut self, holder: CallerGroup) {
        self.in_use -= 1;
        self.by_group.retain_mut(|(group, slots)| {
            *slots -= usize::from(*group == holder);
            *slots > 0
        });
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.slots.release(holder);
        }
    }
}

#[cfg(test)]
mod tests;
