//! Time limits of probes.

use std::time::Duration;

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_duration;
use tokio::time::Instant;

use crate::check_result::Problem;

/// Time limits of one part's probes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// End of all probes but the revocation of a login; `None` leaves each probe its own time.
    end: Option<Instant>,
}

/// Time for the revocation after the end of the other probes.
const REVOCATION: Duration = Duration::from_secs(2);

/// Longest time of one probe where there is an end for all.
const ONE_PROBE: Duration = Duration::from_secs(4);

impl Limits {
    /// Ends all probes after `time`, and the revocation of a login two seconds later.
    pub(crate) fn all_within(time: Duration) -> Self {
        Self { end: Some(Instant::now() + time) }
    }

    /// True if an identity source gets one attempt instead of its retries.
    pub(super) const fn is_bounded(&self) -> bool {
        self.end.is_some()
    }

    /// Awaits a probe until the end.
    pub(super) async fn bound<T>(&self, probe: impl Future<Output = T>) -> Result<T, Problem> {
        let end = self.end.map(|end| end.min(Instant::now() + ONE_PROBE));
        until(end, probe).await
    }

    /// Awaits a revocation.
    pub(super) async fn bound_revocation<T>(&self, revocation: impl Future<Output = T>) -> Result<T, Problem> {
        until(self.end.map(|_| Instant::now() + REVOCATION), revocation).await
    }
}

async fn until<T>(end: Option<Instant>, probe: impl Future<Output = T>) -> Result<T, Problem> {
    let Some(end) = end else { return Ok(probe.await) };
    let time = end.saturating_duration_since(Instant::now());
    let time = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let late = |_| Problem::new(ErrorCode::CheckTimedOut, format!("no result within {}", format_duration(time)));
    tokio::time::timeout_at(end, probe).await.map_err(late)
}
