//! Leases by the time of their next step: finding the next one takes logarithmic time, however many there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::ClockReading;

use crate::leases::Step;

/// Keys of leases by their next step. Ends of leases come before renewals.
#[derive(Debug)]
pub(super) struct DueQueue<K> {
    steps: BTreeMap<Ticket, (Arc<K>, Step)>,
    last_id: u64,
}

/// Position of a lease in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    is_renewal: bool,
    /// By BOOTTIME.
    at: Duration,
    /// Distinguishes steps at the same time.
    id: u64,
}

impl<K> DueQueue<K> {
    pub(super) const fn new() -> Self {
        Self { steps: BTreeMap::new(), last_id: 0 }
    }

    /// Adds a lease.
    pub(super) fn insert(&mut self, key: Arc<K>, step: Step) -> Ticket {
        self.last_id += 1;
        let is_renewal = matches!(step, Step::RenewAt(_));
        let ticket = Ticket { is_renewal, at: step.at().boot, id: self.last_id };
        self.steps.insert(ticket, (key, step));
        ticket
    }

    /// Removes a lease; `None` removes nothing.
    pub(super) fn remove(&mut self, ticket: Option<Ticket>) {
        ticket.and_then(|ticket| self.steps.remove(&ticket));
    }

    /// Returns the time of the next step.
    pub(super) fn next(&self) -> Option<ClockReading> {
        let first = [false, true].into_iter().filter_map(|is_renewal| self.first(is_renewal));
        first.map(|(_, step)| step.at()).min_by_key(|at| at.boot)
    }

    /// Removes a lease whose step is due, and returns its key and the step.
    pub(super) fn pop_due(&mut self, now: ClockReading) -> Option<(Arc<K>, Step)> {
        let is_due = |is_renewal: &bool| self.first(*is_renewal).is_some_and(|(ticket, _)| ticket.at <= now.boot);
        let (ticket, _) = self.first([false, true].into_iter().find(is_due)?)?;
        self.steps.remove(&ticket)
    }

    fn first(&self, is_renewal: bool) -> Option<(Ticket, Step)> {
        let first = Ticket { is_renewal, at: Duration::ZERO, id: 0 };
        let (ticket, (_, step)) = self.steps.range(first..).next()?;
        (ticket.is_renewal == is_renewal).then_some((*ticket, *step))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn due_steps_come_in_the_order_of_their_time_and_ends_come_first() {
        let mut queue = DueQueue::new();
        assert_eq!((queue.next(), queue.pop_due(at(1000))), (None, None));
        let steps = [Step::RenewAt(at(30)), Step::RenewAt(at(10)), Step::ReadAt(at(20)), Step::RenewAt(at(10))];
        let tickets: Vec<_> = (0..).zip(steps).map(|(key, step)| queue.insert(Arc::new(key), step)).collect();
        assert_eq!((queue.next(), queue.pop_due(at(9))), (Some(at(10)), None));
        queue.remove(Some(tickets[1]));
        let mut popped = |now: u64| queue.pop_due(at(now)).map(|(key, _)| *key);
        assert_eq!([popped(25), popped(25), popped(25)], [Some(2), Some(3), None]);
        assert_eq!((queue.next(), queue.pop_due(at(30)).map(|(key, _)| *key)), (Some(at(30)), Some(0)));
        queue.remove(None);
        assert_eq!(queue.next(), None);
    }
}
