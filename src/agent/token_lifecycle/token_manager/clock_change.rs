//! Handles clock changes.

use super::TokenManager;
use crate::token_lifecycle::metrics::ClockMetrics;
use keyward_machine::clock::ClockReading;

impl TokenManager {
    pub(super) fn on_clock_change(&mut self) {
        let now = self.clock.now();
        self.reporter.metrics.get::<ClockMetrics>().jumps.inc();
        tracing::info!(event = "clock.jump", session = self.options.name, "the clock was set or the machine resumed");
        if let Some(current) = &mut self.current {
            current.apply_wall_clock_change(&self.clock);
            self.publish();
            self.save_state();
        }
        let failed_for_clock = self.planner.budget.failed_for_clock();
        if (self.current.is_some() || failed_for_clock) && self.lookups.allow_after_clock_change(now) {
            self.start_lookup();
            if failed_for_clock {
                self.retry_login(now);
            }
        }
    }

    /// Plans the login that waits because its proof did not fit the clock: the clock may be right now.
    fn retry_login(&mut self, now: ClockReading) {
        self.planner.budget.end_wait(now);
        // A call in flight plans the next step at its end.
        if !self.calls.is_busy() {
            self.plan_next_step(self.planner.last_outcome());
            self.publish();
        }
    }
}
