//! Rate limits per user: fixed windows. Time is passed in.

use std::collections::HashMap;
use std::time::Duration;

use keyward_machine::clock::ClockReading;

/// Running windows, by user and kind of request.
#[derive(Debug, Default)]
pub(super) struct RateLimitWindows(HashMap<String, Window>);

#[derive(Debug)]
struct Window {
    ends: ClockReading,
    used: u32,
}

/// Rate limit as reported to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateLimitStatus {
    pub(super) limit: u32,
    pub(super) remaining: u32,
    /// Time until the window ends and its count restarts.
    pub(super) reset: Duration,
    pub(super) allowed: bool,
}

/// Ended windows are dropped once there are this many.
const MAX_WINDOWS: usize = 1_000;

impl RateLimitWindows {
    /// Counts one request.
    pub(super) fn count(&mut self, who: &str, limit: u32, length: Duration, now: ClockReading) -> RateLimitStatus {
        if self.0.len() > MAX_WINDOWS {
            self.0.retain(|_, window| !now.until(window.ends).is_zero());
        }
        let window = self.0.entry(who.to_owned()).or_insert(Window { ends: now + length, used: 0 });
        if now.until(window.ends).is_zero() {
            *window = Window { ends: now + length, used: 0 };
        }
        let allowed = window.used < limit;
        window.used = window.used.saturating_add(1);
        RateLimitStatus { limit, remaining: limit.saturating_sub(window.used), reset: now.until(window.ends), allowed }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn windows_allow_their_limit_and_restart() {
        let start = ClockReading { boot: Duration::from_secs(100), wall: SystemTime::UNIX_EPOCH };
        let second = Duration::from_secs(1);
        let mut windows = RateLimitWindows::default();
        let mut allowed = |who: &str, millis: u64| {
            let rate_limit = windows.count(who, 2, second, start + Duration::from_millis(millis));
            (rate_limit.allowed, rate_limit.remaining, rate_limit.reset.as_millis())
        };
        assert_eq!(allowed("a", 0), (true, 1, 1000));
        assert_eq!(allowed("a", 400), (true, 0, 600));
        assert_eq!(allowed("a", 999), (false, 0, 1));
        assert_eq!(allowed("b", 999), (true, 1, 1000));
        assert_eq!(allowed("a", 1000), (true, 1, 1000));
    }
}
