//! Sliding window: lets a number of actions pass in any span, the others in their order. Pure: time is passed in.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Times of the last actions that passed, at most as many as one span allows.
///
/// Unlike a token bucket, which allows twice its size within a span after a pause, it never exceeds the limit of a server that
/// counts by the span.
#[derive(Debug)]
pub struct SlidingWindow {
    span: Duration,
    /// Actions in any span, at least 1; `None` for unlimited.
    max: Option<usize>,
    passed_at: VecDeque<Instant>,
    paused_until: Option<Instant>,
}

impl SlidingWindow {
    /// Creates an empty window.
    pub const fn new(max: Option<usize>, span: Duration) -> Self {
        Self { span, max, passed_at: VecDeque::new(), paused_until: None }
    }

    /// Changes the limit.
    pub const fn set_max(&mut self, max: Option<usize>) {
        self.max = max;
    }

    /// Lets nothing pass until `end`, or until the end of an earlier pause if that is later.
    pub fn pause_until(&mut self, end: Instant) {
        self.paused_until = self.paused_until.max(Some(end));
    }

    /// Returns the time at which an action passes that `position` others precede.
    pub fn slot(&mut self, position: usize, now: Instant) -> Instant {
        self.paused_until = self.paused_until.filter(|paused_until| *paused_until > now);
        let earliest = self.paused_until.unwrap_or(now);
        let Some(max) = self.max else { return earliest };
        let span = self.span;
        while self.passed_at.len() > max
            || self.passed_at.front().is_some_and(|passed_at| *passed_at + span <= earliest)
        {
            self.passed_at.pop_front();
        }
        // `max` actions later, every slot comes again after one span.
        let spans = position / max;
        let offset = position % max;
        let freed_by = (self.passed_at.len() + offset).checked_sub(max).and_then(|index| self.passed_at.get(index));
        let free = freed_by.map_or(earliest, |passed_at| *passed_at + span);
        free + span.saturating_mul(u32::try_from(spans).unwrap_or(u32::MAX))
    }

    /// Returns the slot of the first action, and counts the action if its slot has come.
    pub fn take_slot(&mut self, now: Instant) -> Instant {
        let slot = self.slot(0, now);
        if slot <= now && self.max.is_some() {
            self.passed_at.push_back(now);
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_span_holds_at_most_the_limit_in_their_order_and_after_a_pause() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut window = SlidingWindow::new(Some(2), Duration::from_secs(1));
        assert_eq!([window.take_slot(at(0)), window.take_slot(at(300))], [at(0), at(300)]);
        assert_eq!(
            [0, 1, 2, 3].map(|position| window.slot(position, at(400))),
            [at(1000), at(1300), at(2000), at(2300)]
        );
        assert_eq!(window.take_slot(at(1000)), at(1000));
        assert_eq!(window.take_slot(at(1000)), at(1300), "not counted, as its time has not come");
        window.pause_until(at(5000));
        window.pause_until(at(4000));
        assert_eq!([window.slot(0, at(1400)), window.slot(2, at(1400))], [at(5000), at(6000)]);
        window.set_max(None);
        assert_eq!([window.slot(9, at(1400)), window.slot(9, at(5000))], [at(5000), at(5000)]);
    }
}
