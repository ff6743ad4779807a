//! Shares the connections to an upstream: no caller gets more than half, and the last ones are reserved for root and
//! the process's own user.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
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
    /// Records the waits for a slot.
    recorder: Option<UpstreamRecorder>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    /// Slots that each group holds. A list: few groups hold one at a time.
    by_group: Vec<(CallerGroup, usize)>,
    /// Waiting callers, the longest first.
    waiting: VecDeque<(CallerGroup, oneshot::Sender<ConnectionSlot>)>,
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    /// The caller that holds it; `None` if it is released.
    holder: Option<CallerGroup>,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize, recorder: Option<UpstreamRecorder>) -> Self {
        Self { max, share: (max / 2).max(1), reserve: (max / 16).min(16), recorder, state: Mutex::default() }
    }

    /// Takes a slot for this caller, waiting for at most `within`.
    pub(super) async fn take(
        self: &Arc<Self>,
        caller: CallerGroup,
        within: Duration,
    ) -> Result<ConnectionSlot, ForwardError> {
        let slot = {
            let mut state = self.state.lock();
            if self.admits(&state, caller) {
                return Ok(state.enter(self, caller));
            }
            let (give, slot) = oneshot::channel();
            state.waiting.push_back((caller, give));
            slot
        };
        // Boxed, since few requests wait.
        let started = Instant::now();
        let slot = Box::pin(tokio::time::timeout(within, slot)).await;
        self.recorder.iter().for_each(|recorder| recorder.record_wait(started.elapsed()));
        slot.ok().and_then(Result::ok).ok_or_else(|| {
            let mut state = self.state.lock();
            state.waiting.retain(|(_, give)| !give.is_closed());
            let all = state.in_use >= self.max || state.held_by(caller) < self.share;
            if all { ForwardError::Busy(self.max) } else { ForwardError::ShareBusy(self.share) }
        })
    }

    /// Returns the number of slots in use.
    pub(super) fn in_use(&self) -> usize {
        self.state.lock().in_use
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
            state.waiting.iter().position(|(caller, give)| give.is_closed() || self.admits(&state, *caller))
        {
            let Some((caller, give)) = state.waiting.remove(next) else { return };
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
