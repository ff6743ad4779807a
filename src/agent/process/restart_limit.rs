//! Limit of the restarts for changed variables.

use std::fmt;
use std::time::Duration;

use keyward_credentials::sliding_window::SlidingWindow;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::time_format::format_duration;
use tokio::time::Instant;

/// Maximum of restarts in any span of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartLimit {
    /// Restarts, at least 1.
    pub max: usize,
    /// Length of the span.
    pub span: Duration,
}

impl fmt::Display for RestartLimit {
    /// Writes it as the configuration has it, such as `3/1h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.max, format_duration(self.span))
    }
}

/// Counts the restarts of one process, and says when the next one is allowed.
#[derive(Debug)]
pub(super) struct RestartLimiter(SlidingWindow);

impl RestartLimiter {
    /// Creates a limiter without restarts; `None` allows all.
    pub(super) const fn new(limit: Option<RestartLimit>) -> Self {
        Self(match limit {
            Some(RestartLimit { max, span }) => SlidingWindow::new(Some(max), span),
            None => SlidingWindow::new(None, Duration::ZERO),
        })
    }

    /// Counts a restart.
    ///
    /// # Errors
    /// None is allowed now, and it is not counted; the value is the time at which it is.
    pub(super) fn try_restart(&mut self, clock: &Clock) -> Result<(), ClockReading> {
        let now = Instant::now();
        let slot = self.0.take_slot(now);
        if slot <= now { Ok(()) } else { Err(clock.now() + slot.duration_since(now)) }
    }
}
