//! Limits the rate of logged rejections, so that a caller that is rejected all the time does not fill the log.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Counts logged and suppressed rejections by reason.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<HashMap<&'static str, Entry>>);

#[derive(Debug)]
struct Entry {
    since: Instant,
    lines: u32,
    suppressed: u64,
}

impl LogThrottle {
    /// Returns `None` if one more rejection for this reason is not to be logged, else the number of rejections
    /// suppressed before it.
    pub fn allow(&self, reason: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.0.lock();
        let entry = all.entry(reason).or_insert(Entry { since: now, lines: 0, suppressed: 0 });
        if now - entry.since >= RESET_AFTER {
            entry.lines = 0;
        }
        if entry.lines < INITIAL_LOGGED || now - entry.since >= LOG_INTERVAL {
            entry.since = now;
            entry.lines = entry.lines.saturating_add(1);
            return Some(std::mem::take(&mut entry.suppressed));
        }
        entry.suppressed += 1;
        None
    }
}

/// Rejections logged individually at first.
const INITIAL_LOGGED: u32 = 5;
/// Interval of log lines after that.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// Time after the last rejection until the count starts anew.
const RESET_AFTER: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_rejections_are_logged_then_one_a_minute_with_a_count() {
        let log_throttle = LogThrottle::default();
        let allowed = |times: usize| (0..times).filter_map(|_| log_throttle.allow("browser")).collect::<Vec<_>>();
        assert_eq!(allowed(1000), [0; 5]);
        assert_eq!(log_throttle.allow("key"), Some(0), "another reason");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(allowed(5).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(allowed(3), [1000]);
        tokio::time::advance(Duration::from_mins(20)).await;
        assert_eq!(allowed(9), [2, 0, 0, 0, 0], "after a long quiet they are logged as at first");
    }
}
