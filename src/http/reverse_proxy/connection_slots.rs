//! Shares the connections to an upstream: no caller gets more than half, and the last ones are reserved for root and
//! the process's own user.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{ForwardError, UpstreamRecorder};
use crate::server::{CallerGroup, ConnectionCaller};

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
    /// Holder of each slot; `None` if it is free.
    slot_owners: Vec<Option<SlotOwner>>,
    free: Vec<usize>,
    /// Slots held by each group that was looked up.
    by_group: HashMap<CallerGroup, usize>,
    /// Slots whose holders were not looked up yet.
    unknown: usize,
    /// Waiting callers, the longest first.
    waiting: VecDeque<(CallerGroup, oneshot::Sender<ConnectionSlot>)>,
}

#[derive(Debug)]
struct SlotOwner {
    caller: ConnectionCaller,
    /// Looked up only when slots are scarce.
    group: Option<CallerGroup>,
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    index: usize,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize, recorder: Option<UpstreamRecorder>) -> Self {
        Self { max, share: (max / 2).max(1), reserve: (max / 16).min(16), recorder, state: Mutex::default() }
    }

    /// Takes a slot for this caller, waiting for at most `within`.
    pub(super) async fn take(
        self: &Arc<Self>,
        caller: ConnectionCaller,
        within: Duration,
    ) -> Result<ConnectionSlot, ForwardError> {
        let (group, slot) = {
            let mut state = self.state.lock();
            // No caller can exceed its share yet, so the caller is not looked up.
            if state.in_use() < self.share {
                return Ok(state.enter(self, caller, None));
            }
            let group = caller.group();
            state.resolve_holders();
            if self.admits(&state, group) {
                return Ok(state.enter(self, caller, Some(group)));
            }
            let (give, slot) = oneshot::channel();
            state.waiting.push_back((group, give));
            (group, slot)
        };
        // Boxed, since few requests wait.
        let started = Instant::now();
        let slot = Box::pin(tokio::time::timeout(within, slot)).await;
        self.recorder.iter().for_each(|recorder| recorder.record_wait(started.elapsed()));
        slot.ok().and_then(Result::ok).ok_or_else(|| {
            let mut state = self.state.lock();
            state.waiting.retain(|(_, give)| !give.is_closed());
            let all = state.in_use() >= self.max
                || state.by_group.get(&group).is_none_or(|slot_owners| *slot_owners < self.share);
            if all { ForwardError::Busy(self.max) } else { ForwardError::ShareBusy(self.share) }
        })
    }

    fn admits(&self, state: &State, group: CallerGroup) -> bool {
        let max = if group.is_trusted() { self.max } else { self.max - self.reserve };
        state.in_use() < max && state.by_group.get(&group).is_none_or(|slot_owners| *slot_owners < self.share)
    }

    /// Releases a slot and hands it to the longest waiting caller that may have it.
    fn release(self: &Arc<Self>, index: usize) {
        let mut state = self.state.lock();
        state.leave(index);
        while let Some(next) =
            state.waiting.iter().position(|(group, give)| give.is_closed() || self.admits(&state, *group))
        {
            let Some((group, give)) = state.waiting.remove(next) else { return };
            if give.is_closed() {
                continue;
            }
            let slot = state.occupy(self, group);
            if let Err(mut slot) = give.send(slot) {
                // The receiver was dropped meanwhile. The lock is held, so the slot must not release itself.
                state.leave(slot.index);
                slot.index = NONE;
            }
        }
    }
}

impl State {
    fn in_use(&self) -> usize {
        self.slot_owners.len() - self.free.len()
    }

    fn enter(
        &mut self,
        slots: &Arc<ConnectionSlots>,
        caller: ConnectionCaller,
        group: Option<CallerGroup>,
    ) -> ConnectionSlot {
        match group {
            None => self.unknown += 1,
            Some(group) => *self.by_group.entry(group).or_default() += 1,
        }
        let holder = Some(SlotOwner { caller, group });
        let index = if let Some(index) = self.free.pop() {
            if let Some(slot) = self.slot_owners.get_mut(index) {
                *slot = holder;
            }
            index
        } else {
            self.slot_owners.push(holder);
            self.slot_owners.len() - 1
        };
        ConnectionSlot { slots: Arc::clone(slots), index }
    }

    fn occupy(&mut self, slots: &Arc<ConnectionSlots>, group: CallerGroup) -> ConnectionSlot {
        // The group is known, so the caller is not needed any more.
        self.enter(slots, ConnectionCaller::own_process(), Some(group))
    }

    fn leave(&mut self, index: usize) {
        let Some(holder) = self.slot_owners.get_mut(index).and_then(Option::take) else { return };
        self.free.push(index);
        match holder.group {
            None => self.unknown -= 1,
            Some(group) => {
                if let Some(slot_owners) = self.by_group.get_mut(&group) {
                    *slot_owners -= 1;
                    if *slot_owners == 0 {
                        self.by_group.remove(&group);
                    }
                }
            }
        }
    }

    /// Resolves the groups of all holders that are still unresolved.
    fn resolve_holders(&mut self) {
        if self.unknown == 0 {
            return;
        }
        for holder in self.slot_owners.iter_mut().flatten().filter(|holder| holder.group.is_none()) {
            let group = holder.caller.group();
            holder.group = Some(group);
            *self.by_group.entry(group).or_default() += 1;
        }
        self.unknown = 0;
    }
}

const NONE: usize = usize::MAX;

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.index != NONE {
            self.slots.release(self.index);
        }
    }
}

#[cfg(test)]
mod tests;
