//! End of a timeout from the command line.

use std::time::Duration;

use tokio::time::Instant;

/// End of a timeout; one that no clock can hold never ends.
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// Starts a timeout.
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// Returns the time that is left, at most `most`.
    pub(super) fn at_most(&self, max: Duration) -> Duration {
        self.0.map_or(max, |end| max.min(end.saturating_duration_since(Instant::now())))
    }

    pub(super) fn is_over(&self) -> bool {
        self.at_most(Duration::from_nanos(1)).is_zero()
    }
}
