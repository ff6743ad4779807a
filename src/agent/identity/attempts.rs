//! Attempts at a proof: waits between them by the retry policy, and logs each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::time_format::seconds;

use super::error::{AttemptError, IdentityError};
use super::retry::{IdentityEndpoint, RetryPolicy, to_identity_error};

/// Attempts at one proof.
pub(super) struct Attempts<'a> {
    clock: &'a Clock,
    start: ClockReading,
    policy: RetryPolicy,
    endpoint: IdentityEndpoint,
    source_name: &'static str,
    /// True if the last proof failed. Then a single attempt is made: the session applies its own backoff.
    is_single: bool,
}

impl<'a> Attempts<'a> {
    /// Starts the attempts at one proof; a source that is `failing` makes one.
    pub(super) fn start(
        clock: &'a Clock,
        endpoint: IdentityEndpoint,
        source_name: &'static str,
        failing: &AtomicBool,
    ) -> Self {
        let is_single = failing.load(Ordering::Relaxed);
        Self { clock, start: clock.now(), policy: RetryPolicy::default(), endpoint, source_name, is_single }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// This was the last one.
    pub(super) async fn wait(&mut self, failure: &AttemptError) -> Result<(), IdentityError> {
        let elapsed = self.clock.now().since(self.start);
        let wait = self.policy.next(failure, self.endpoint, elapsed, random_unit());
        // A retry without a wait only reads a file again, which costs no call.
        let Some(wait) = wait.filter(|wait| !self.is_single || wait.is_zero()) else {
            return Err(to_identity_error(failure, self.endpoint, self.source_name));
        };
        tracing::info!(
            event = "identity.token.retry",
            source = self.source_name,
            error = failure.to_string(),
            retry_in_seconds = seconds(wait),
            "cannot get an identity token; trying again"
        );
        self.clock.sleep(wait).await;
        Ok(())
    }
}

/// Time that a credential or token must stay valid for a login.
pub(super) const MIN_VALIDITY: Duration = Duration::from_mins(1);
