//! Schedule of a secret's retries: a pure function of the failure and of the budget that the secrets of one session share.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::Backoff;
use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::ClockReading;
use parking_lot::Mutex;

use super::reread::NEVER;
use crate::retry_budget::spread_retry_after;
use crate::token::Generation;

/// Kind of a failed read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The server did not respond, or reported an outage.
    Outage,
    /// The server refused a call that was made with this token.
    Refused(Generation),
    /// The response holds no usable secret. Reading it again may create something, so there is no quick retry.
    Unusable,
    /// A write has succeeded, and its result cannot be used. Another one would create another.
    Final,
}

/// Retries of one secret.
#[derive(Debug)]
pub(crate) struct RetrySchedule {
    /// Consecutive failures of the same kind.
    failures: u32,
    last: Option<ReadFailure>,
    not_before: ClockReading,
}

impl RetrySchedule {
    pub(crate) const fn new(now: ClockReading) -> Self {
        Self { failures: 0, last: None, not_before: now }
    }

    pub(crate) const fn record_success(&mut self, now: ClockReading) {
        *self = Self::new(now);
    }

    /// Records a failure of what is read at an interval, and plans the next try: at most `interval` away (5 s to 5 min), else as
    /// [`RetrySchedule::record_failure_within`].
    pub(super) fn record_failure(
        &mut self,
        now: ClockReading,
        failure: ReadFailure,
        retry_after: Option<Duration>,
        interval: Duration,
        budget: &QuickRetryBudget,
        unit: f64,
    ) {
        let longest = interval.clamp(MIN_WAIT_BOUND, MAX_WAIT_BOUND);
        self.record_failure_within(now, failure, retry_after, longest, budget, unit);
    }

    /// Records a failure and plans the next try. While the server answers, that is `longest` away, or a tenth less, and sooner while
    /// `budget` lasts: 1 s, 2 s, 4 s and so on, the second half of each random. `unit` is a random number in `0.0..1.0`.
    pub(crate) fn record_failure_within(
        &mut self,
        now: ClockReading,
        failure: ReadFailure,
        retry_after: Option<Duration>,
        longest: Duration,
        budget: &QuickRetryBudget,
        unit: f64,
    ) {
        if self.last.is_none_or(|last| std::mem::discriminant(&last) != std::mem::discriminant(&failure)) {
            self.failures = 0;
        }
        self.last = Some(failure);
        let wait = match failure {
            ReadFailure::Outage => Backoff::UPSTREAM.with_failures(self.failures).next(unit),
            ReadFailure::Unusable => longest.mul_f64(0.1f64.mul_add(unit, 0.9)),
            ReadFailure::Final => NEVER,
            ReadFailure::Refused(_) => {
                let quick = Backoff::UPSTREAM.with_failures(self.failures).next_half_jitter(unit);
                if quick < longest.mul_f64(0.9) && budget.try_take(now) {
                    quick
                } else {
                    longest.mul_f64(0.1f64.mul_add(unit, 0.9))
                }
            }
        };
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + spread_retry_after(retry_after, unit).max(wait);
    }

    /// Earliest time of the next try.
    pub(crate) const fn not_before(&self) -> ClockReading {
        self.not_before
    }

    /// Returns true if the last read failed.
    pub(crate) const fn is_failing(&self) -> bool {
        self.last.is_some()
    }

    /// Returns true if the last read gave no usable secret, so that only its own schedule repeats it.
    pub(crate) const fn is_unusable(&self) -> bool {
        matches!(self.last, Some(ReadFailure::Unusable))
    }

    /// Returns true if the last write created something that cannot be used, so that it is not repeated.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self.last, Some(ReadFailure::Final))
    }

    /// The token whose read the server refused last.
    pub(crate) const fn refused_token(&self) -> Option<Generation> {
        match self.last {
            Some(ReadFailure::Refused(generation)) => Some(generation),
            _ => None,
        }
    }
}

/// Budget of retries that come sooner than a healthy secret's next read, for all secrets of a session. Clones share it.
///
/// A session may keep hundreds of secrets. When a policy is withdrawn they all fail at once; without a common bound each of
/// them would make its own series of quick retries.
#[derive(Debug, Clone, Default)]
pub struct QuickRetryBudget(Arc<Mutex<Budget>>);

#[derive(Debug)]
struct Budget {
    quick_retries: TokenBucket,
    suspicions: TokenBucket,
}

impl Default for Budget {
    fn default() -> Self {
        Self { quick_retries: QUICK_RETRIES, suspicions: SUSPICIONS }
    }
}

impl QuickRetryBudget {
    /// Takes one retry from the budget; false if it is used up.
    pub(super) fn try_take(&self, now: ClockReading) -> bool {
        self.0.lock().quick_retries.try_take(now).is_ok()
    }

    /// True if a refusal that may be the policy's shall have the session check its token. At most once in two minutes,
    /// as for the API proxy: a policy that always refuses must not use up the checks that a dead token needs.
    pub(crate) fn may_suspect_token(&self, now: ClockReading) -> bool {
        self.0.lock().suspicions.try_take(now).is_ok()
    }
}

/// At most 120 in any hour.
const QUICK_RETRIES: TokenBucket = TokenBucket::full(60, Duration::from_mins(1));

const SUSPICIONS: TokenBucket = TokenBucket::full(1, Duration::from_mins(2));

/// Bounds of the longest wait while the server answers, whatever the interval is.
const MIN_WAIT_BOUND: Duration = Duration::from_secs(5);
const MAX_WAIT_BOUND: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const MINUTES: Duration = Duration::from_mins(5);

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn a_refused_read_is_retried_quickly_and_never_later_than_the_interval() {
        let refused = ReadFailure::Refused(Generation::new());
        let check = |interval: Duration, unit: f64, expected: &[u64]| {
            let mut retries = RetrySchedule::new(at(0));
            let budget = QuickRetryBudget::default();
            let waits: Vec<_> = (0..expected.len())
                .map(|_| {
                    retries.record_failure(at(0), refused, None, interval, &budget, unit);
                    at(0).until(retries.not_before()).as_secs()
                })
                .collect();
            assert_eq!(waits, expected, "{interval:?}");
        };
        check(Duration::from_secs(10), 1.0, &[1, 2, 4, 8, 10, 10]);
        check(Duration::from_secs(1), 1.0, &[1, 2, 4, 5, 5]);
        check(MINUTES, 0.0, &[0, 1, 2, 4, 8, 16, 32, 64, 128, 150, 150]);
        check(Duration::from_hours(24), 1.0, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    }

    #[test]
    fn many_secrets_share_the_quick_retries() {
        let refused = ReadFailure::Refused(Generation::new());
        let budget = QuickRetryBudget::default();
        let quick = |now: u64| {
            let mut retries = RetrySchedule::new(at(now));
            retries.record_failure(at(now), refused, None, MINUTES, &budget, 1.0);
            retries.not_before() == at(now + 1)
        };
        assert_eq!((0..1000).filter(|_| quick(0)).count(), 60);
        assert_eq!((0..1000).filter(|_| quick(120)).count(), 2);
        assert_eq!((0..1000).filter(|_| quick(36_000)).count(), 60);
    }

    #[test]
    fn an_outage_backs_off_alone_and_a_requested_wait_is_kept() {
        let mut retries = RetrySchedule::new(at(0));
        let budget = QuickRetryBudget::default();
        for _ in 0..20 {
            retries.record_failure(at(0), ReadFailure::Outage, None, MINUTES, &budget, 1.0);
        }
        assert_eq!(retries.not_before(), at(300));
        let refused = ReadFailure::Refused(Generation::new());
        retries.record_failure(at(0), refused, None, MINUTES, &budget, 1.0);
        assert_eq!(retries.not_before(), at(1), "the server responds again");
        retries.record_failure(at(0), refused, Some(Duration::from_mins(1)), MINUTES, &budget, 0.0);
        assert_eq!(retries.not_before(), at(60));
        retries.record_failure(at(0), ReadFailure::Unusable, None, Duration::from_secs(20), &budget, 1.0);
        assert_eq!(retries.not_before(), at(20), "no quick retry of what may create something");
    }

    #[test]
    fn refusals_request_a_check_of_the_token_every_two_minutes() {
        let budget = QuickRetryBudget::default();
        let due: Vec<_> = (0..300).filter(|second| budget.may_suspect_token(at(*second))).collect();
        assert_eq!(due, [0, 120, 240]);
    }
}
