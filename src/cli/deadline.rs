//! End of a time-out from the command line.

use std::time::Duration;

use tokio::time::Instant;

/// End of a time-out; one that no clock can hold never ends.
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// Begins a time-out.
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// Returns the time that is left, at most `most`.
    pub(super) fn at_most(&self, most: Duration) -> Duration {
        self.0.map_or(most, |end| most.min(end.saturating_duration_since(Instant::now())))
    }

    pub(super) fn is_over(&self) -> bool {
        self.at_most(Duration::from_nanos(1)).is_zero()
    }
}
