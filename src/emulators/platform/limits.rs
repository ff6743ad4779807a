//! How many requests a user may make in a span of time. Time is passed in.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::ClockReading;

/// The spans that run, by who asks for what.
#[derive(Debug, Default)]
pub(super) struct Spans(HashMap<String, Span>);

#[derive(Debug)]
struct Span {
    ends: ClockReading,
    used: u32,
}

/// What a request is told of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) limit: u32,
    pub(super) left: u32,
    /// Time until the span ends and requests are counted anew.
    pub(super) reset: Duration,
    pub(super) allowed: bool,
}

/// Spans are forgotten once they have ended and there are this many.
const MANY: usize = 1_000;

impl Spans {
    /// Counts one request.
    pub(super) fn count(&mut self, who: &str, limit: u32, length: Duration, now: ClockReading) -> Standing {
        if self.0.len() > MANY {
            self.0.retain(|_, span| !now.until(span.ends).is_zero());
        }
        let span = self.0.entry(who.to_owned()).or_insert(Span { ends: now + length, used: 0 });
        if now.until(span.ends).is_zero() {
            *span = Span { ends: now + length, used: 0 };
        }
        let allowed = span.used < limit;
        span.used = span.used.saturating_add(1);
        Standing { limit, left: limit.saturating_sub(span.used), reset: now.until(span.ends), allowed }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_span_allows_its_number_and_then_begins_anew() {
        let start = ClockReading { boot: Duration::from_secs(100), wall: SystemTime::UNIX_EPOCH };
        let second = Duration::from_secs(1);
        let mut spans = Spans::default();
        let mut allowed = |who: &str, millis: u64| {
            let standing = spans.count(who, 2, second, start + Duration::from_millis(millis));
            (standing.allowed, standing.left, standing.reset.as_millis())
        };
        assert_eq!(allowed("a", 0), (true, 1, 1000));
        assert_eq!(allowed("a", 400), (true, 0, 600));
        assert_eq!(allowed("a", 999), (false, 0, 1));
        assert_eq!(allowed("b", 999), (true, 1, 1000));
        assert_eq!(allowed("a", 1000), (true, 1, 1000));
    }
}
