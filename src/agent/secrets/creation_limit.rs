//! Limits the creation of tokens for callers: a token bucket of their own, and one backoff for all after a failure.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_code::ErrorCode;
use parking_lot::Mutex;

use crate::retry_budget::{FailureCause, RetryBudget};

/// Limit of the tokens that are created for one caller and session. Each permit covers the creation of a token and its later
/// revocation. It takes nothing from the budget of logins.
#[derive(Debug)]
pub struct CreationLimit(Mutex<LimitState>);

#[derive(Debug)]
struct LimitState {
    bucket: TokenBucket,
    failures: RetryBudget,
    /// Error of the last creation with its code, while the backoff after it lasts.
    error: Option<(Option<ErrorCode>, Arc<str>)>,
}

/// Reason why no token may be created now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CreationRefusal {
    /// Too many were created.
    RateLimited {
        /// Time until the next one may be.
        retry_after: Duration,
    },
    /// The last creation failed.
    Failing {
        /// Code of its error.
        code: Option<ErrorCode>,
        /// Its error; holds no secret.
        error: Arc<str>,
        /// Time until the next attempt.
        retry_after: Duration,
    },
}

impl CreationLimit {
    /// Creates a limit with a full bucket.
    pub fn new(now: ClockReading) -> Self {
        Self(Mutex::new(LimitState { bucket: CREATIONS, failures: RetryBudget::new(now), error: None }))
    }

    /// Checks that a token may be created, without taking a permit.
    pub(crate) fn check(&self, now: ClockReading) -> Result<(), CreationRefusal> {
        self.0.lock().check(now)
    }

    /// Takes a permit.
    pub(crate) fn take(&self, now: ClockReading) -> Result<(), CreationRefusal> {
        let mut state = self.0.lock();
        state.check(now)?;
        state.bucket.take(now, 1);
        Ok(())
    }

    /// Records a creation that succeeded.
    pub(super) fn record_success(&self, now: ClockReading) {
        let mut state = self.0.lock();
        state.failures.record_success(now);
        state.error = None;
    }

    /// Records a failed creation. `unit` is a random number in `0.0..1.0`.
    pub(super) fn record_failure(
        &self,
        now: ClockReading,
        failure: FailureCause,
        code: Option<ErrorCode>,
        error: &str,
        retry_after: Option<Duration>,
        unit: f64,
    ) {
        let mut state = self.0.lock();
        state.failures.record_failure(now, failure, retry_after, unit);
        state.error = Some((code, error.into()));
    }
}

impl LimitState {
    fn check(&mut self, now: ClockReading) -> Result<(), CreationRefusal> {
        let wait = now.until(self.failures.not_before());
        if let Some((code, error)) = self.error.as_ref().filter(|_| !wait.is_zero()) {
            return Err(CreationRefusal::Failing { code: *code, error: Arc::clone(error), retry_after: wait });
        }
        let retry_after = now.until(self.bucket.available_at(now, 1));
        if retry_after.is_zero() { Ok(()) } else { Err(CreationRefusal::RateLimited { retry_after }) }
    }
}

/// A burst of as many creations as tokens may be live, then one per second.
const CREATIONS: TokenBucket = TokenBucket::full(64, Duration::from_secs(1));

#[cfg(test)]
mod tests {
    use keyward_machine::clock::Clock;

    use super::*;

    #[test]
    fn sixty_four_tokens_are_created_at_once_and_then_one_a_second() {
        let now = Clock::System.now();
        let limit = CreationLimit::new(now);
        let taken = (0..10_000).filter(|_| limit.take(now).is_ok()).count();
        assert_eq!(taken, 64);
        let refusal = CreationRefusal::RateLimited { retry_after: Duration::from_secs(1) };
        assert_eq!(limit.check(now), Err(refusal));
        let later = now + Duration::from_secs(10);
        assert_eq!((0..100).filter(|_| limit.take(later).is_ok()).count(), 10);
    }

    #[test]
    fn one_failure_delays_the_creation_for_all_until_one_succeeds() {
        let now = Clock::System.now();
        let limit = CreationLimit::new(now);
        limit.record_failure(now, FailureCause::Refused, Some(ErrorCode::AccessDenied), "HTTP 403", None, 0.0);
        let refusal = |wait| CreationRefusal::Failing {
            code: Some(ErrorCode::AccessDenied),
            error: "HTTP 403".into(),
            retry_after: Duration::from_secs(wait),
        };
        assert_eq!(limit.take(now), Err(refusal(150)));
        assert_eq!(limit.take(now + Duration::from_secs(149)), Err(refusal(1)));
        assert_eq!(limit.take(now + Duration::from_secs(150)), Ok(()));
        limit.record_success(now);
        assert_eq!(limit.take(now), Ok(()));
    }
}
