//! Attempts at a proof: waits between them by the retry policy, and logs each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::time_format::seconds;

use super::error::{AttemptError, IdentityError};
use super::retry::{IdentityEndpoint, RetryPolicy, to_identity_error};

/// How often a source tries for a proof. After a proof that failed it tries once: the session applies its own backoff.
#[derive(Debug)]
pub(super) struct Persistence {
    clock: Clock,
    is_single: AtomicBool,
}

impl Persistence {
    /// Creates the persistence of a session's source.
    pub(super) const fn new(clock: Clock) -> Self {
        Self { clock, is_single: AtomicBool::new(false) }
    }

    /// Creates the persistence of a source that tries once, for a command.
    pub(super) const fn single(clock: Clock) -> Self {
        Self { clock, is_single: AtomicBool::new(true) }
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Starts the attempts at one proof.
    pub(super) fn start(&self, endpoint: IdentityEndpoint, source_name: &'static str) -> Attempts<'_> {
        Attempts { persistence: self, start: self.clock.now(), policy: RetryPolicy::default(), endpoint, source_name }
    }
}

/// Attempts at one proof.
pub(super) struct Attempts<'a> {
    persistence: &'a Persistence,
    start: ClockReading,
    policy: RetryPolicy,
    endpoint: IdentityEndpoint,
    source_name: &'static str,
}

impl Attempts<'_> {
    /// Waits before the next attempt.
    ///
    /// # Errors
    /// This was the last one.
    pub(super) async fn wait(&mut self, failure: &AttemptError) -> Result<(), IdentityError> {
        let Persistence { clock, is_single } = self.persistence;
        let elapsed = clock.now().since(self.start);
        let wait = self.policy.next(failure, self.endpoint, elapsed, random_unit());
        // A retry without a wait only reads a file again, which costs no call.
        let Some(wait) = wait.filter(|wait| !is_single.load(Ordering::Relaxed) || wait.is_zero()) else {
            is_single.store(true, Ordering::Relaxed);
            return Err(to_identity_error(failure, self.endpoint, self.source_name));
        };
        tracing::info!(
            event = "identity.token.retry",
            source = self.source_name,
            error = failure.to_string(),
            retry_in_seconds = seconds(wait),
            "cannot get an identity token; trying again"
        );
        clock.sleep(wait).await;
        Ok(())
    }

    /// Ends the attempts with this result: the next proof has all of them again.
    pub(super) fn succeed<T>(self, result: T) -> T {
        self.persistence.is_single.store(false, Ordering::Relaxed);
        result
    }
}

/// Shortest rest of the validity of a credential or token for a login.
pub(super) const MIN_VALIDITY: Duration = Duration::from_mins(1);
