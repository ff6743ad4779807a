//! Limits the rate of logged rejections, so that a caller that is rejected all the time does not fill the log.

use std::collections::HashMap;
use std::time::Duration;

use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::Clock;
use parking_lot::Mutex;

/// Counts logged and suppressed rejections by reason.
#[derive(Debug, Default)]
pub struct LogThrottle {
    clock: Clock,
    /// Lines that may be logged, and the rejections suppressed since the last one.
    reasons: Mutex<HashMap<&'static str, (TokenBucket, u64)>>,
}

impl LogThrottle {
    /// Returns `None` if one more rejection for this reason is not to be logged, else the number of rejections
    /// suppressed before it.
    pub fn allow(&self, reason: &'static str) -> Option<u64> {
        let mut reasons = self.reasons.lock();
        let (lines, suppressed) = reasons.entry(reason).or_insert((LINES, 0));
        if lines.try_take(self.clock.now()).is_ok() {
            return Some(std::mem::take(suppressed));
        }
        *suppressed += 1;
        None
    }
}

/// Five at first, then one a minute.
const LINES: TokenBucket = TokenBucket::full(5, Duration::from_mins(1));

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_machine::clock::TestClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_rejections_are_logged_then_one_a_minute_with_a_count() {
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        let log_throttle = LogThrottle { clock, ..LogThrottle::default() };
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
