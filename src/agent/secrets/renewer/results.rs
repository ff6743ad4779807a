//! Results of calls: records what was read or renewed, and plans the next step.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;

use super::SecretRenewer;
use crate::leases::{ActiveLease, RenewalFailure};
use crate::secrets::persisted_secrets::SecretRecord;
use crate::secrets::reread::{made_until, next_request};
use crate::secrets::retry::ReadFailure;
use crate::secrets::{SecretMetrics, SecretOp, SecretResponse};
use crate::server_client::{CallError, TokenVerdict};
use crate::token::{Generation, Lease};

/// Result of a successful call.
pub(super) enum CallResult {
    Read(SecretResponse),
    Renewed(Lease),
}

impl<T> SecretRenewer<T> {
    pub(super) fn count_call(&self, renewal: bool, result: &Result<CallResult, CallError>) {
        let call = if renewal { "renew" } else { "read" };
        self.deps.metrics.get::<SecretMetrics>().count_call(&self.options.label, call, result.is_ok());
    }

    /// Records a call that gave or renewed the secret.
    fn record_success(&mut self, now: ClockReading) {
        self.retries.record_success(now);
        if let Some(health) = &self.deps.health {
            health.clear_warning();
        }
        if let Some(lasted_seconds) = self.outage.record_success(now) {
            let secret = &self.options.name;
            tracing::info!(event = "agent.secret.recovered", secret, lasted_seconds, "the secret can be read again");
        }
    }

    /// Records the response at `now` to a read that was sent at `sent`.
    pub(super) fn record_read(
        &mut self,
        response: SecretResponse,
        generation: Generation,
        sent: ClockReading,
        now: ClockReading,
    ) {
        let is_changed =
            self.current.as_ref().is_none_or(|current| !current.is_published || current.record.data != response.data);
        let projected =
            if is_changed { (self.deps.projection)(&self.options, &response, now).map(Some) } else { Ok(None) };
        let SecretResponse { data, lease, suggested_ttl } = response;
        let request = &self.options.request;
        let next = next_request(request, &data, self.intervals(suggested_ttl), Duration::ZERO, now);
        // If it has ended before it came, one of the two clocks is wrong. It is used all the same.
        let made_until = made_until(request, &data, Duration::ZERO, now).filter(|end| !now.until(*end).is_zero());
        let projected = match projected {
            Ok(projected) => projected,
            Err(reason) => {
                self.replaced.extend(lease.map(|lease| (lease, now)));
                return self.reject(&reason, now);
            }
        };
        self.record_success(now);
        let previous = self.current.take();
        if let Some((old, _)) = previous.and_then(|previous| previous.record.lease)
            && lease.as_ref().is_none_or(|lease| lease.id != old.id)
        {
            self.replaced.push((old, now + self.options.grace));
        }
        let lease = lease.map(|lease| {
            let active = ActiveLease::issued(lease.lease, sent, random_unit());
            (lease, active)
        });
        match projected {
            Some(projected) => {
                let lease_seconds = lease.as_ref().map(|(lease, _)| lease.lease.ttl.as_secs());
                tracing::info!(
                    event = "agent.secret.read",
                    secret = self.options.name,
                    lease_seconds,
                    "a secret was read"
                );
                self.deps.publisher.publish(Availability::Available(Arc::new(projected)), Some(now));
            }
            None => self.deps.publisher.record_check(now),
        }
        if let Some(health) = &self.deps.health {
            health.set_ready();
        }
        self.publish_restored_at = None;
        let age_at_read = Duration::ZERO;
        let login = Some(generation);
        let record = SecretRecord { data, read: now, age_at_read, lease, suggested_ttl, login };
        self.made_until = made_until.filter(|_| record.lease.is_none());
        self.set_current(record, true);
        self.read_at = next.at(now, random_unit());
        self.save_record();
    }

    /// Rejects a secret that cannot be used, and schedules another read: a better one may be written.
    fn reject(&mut self, reason: &str, now: ClockReading) {
        self.outage.record_failure(now);
        let code = ErrorCode::SecretUnusable;
        tracing::warn!(
            event = "agent.secret.failed",
            secret = self.options.name,
            code = code.as_str(),
            error = reason,
            "secret rejected"
        );
        self.schedule_retry(now, ReadFailure::Unusable, None);
        let at = self.retries.not_before();
        self.schedule_read(at);
        if self.current.is_none() {
            self.publish_absence(Some(code), reason, now.until(at));
        } else {
            self.record_stale(Some(code), reason);
        }
    }

    pub(super) fn record_renewal(&mut self, lease: Lease, sent: ClockReading, now: ClockReading) {
        self.record_success(now);
        if let Some(active) = self.active_lease() {
            active.record_renewal(lease, sent, random_unit());
        }
        self.deps.publisher.record_check(now);
        self.save_record();
        self.publish_restored();
    }

    pub(super) fn record_failure(
        &mut self,
        error: &CallError,
        renewal: bool,
        generation: Generation,
        now: ClockReading,
    ) {
        self.outage.record_failure(now);
        let verdict = error.verdict();
        let secret = &self.options.name;
        let text = format_chain(error);
        let code = error.code().map(ErrorCode::as_str);
        tracing::warn!(
            event = "agent.secret.failed",
            secret,
            renewal,
            code,
            error = text,
            "{}",
            if renewal { "cannot renew the lease" } else { "cannot read the secret" }
        );
        let suspect = verdict == TokenVerdict::Denied && self.deps.retry_budget.may_suspect_token(now);
        if verdict.suspects_token() || suspect {
            // A new token of the session triggers another read at once.
            self.deps.session.request();
        }
        if renewal && RenewalFailure::from_error(error) != RenewalFailure::Outage {
            // The lease cannot be renewed, but another one may be issued.
            if let Some(active) = self.active_lease() {
                active.refuse_renewal(random_unit());
            }
            self.drop_unpublished();
            return self.schedule_read(now);
        }
        let is_write = matches!(self.options.request.op, SecretOp::Write(_));
        let failure = match error {
            _ if verdict == TokenVerdict::Unavailable => ReadFailure::Outage,
            CallError::NoSecret { .. } | CallError::TooLarge { .. } if is_write => ReadFailure::Final,
            CallError::NoSecret { .. } | CallError::TooLarge { .. } => ReadFailure::Unusable,
            // Whoever corrects the request changes the template. A policy is corrected on the server.
            CallError::Status { status, .. } if is_write && *status != 403 => ReadFailure::Unusable,
            _ => ReadFailure::Refused(generation),
        };
        let text = if failure == ReadFailure::Final { format!("{text}; {NOT_REPEATED}") } else { text };
        if failure == ReadFailure::Outage {
            self.publish_restored();
        } else if !verdict.suspects_token() {
            self.drop_unpublished();
        }
        self.schedule_retry(now, failure, error.retry_after());
        let at = self.retries.not_before();
        match self.active_lease() {
            Some(active) if renewal => active.retry_renewal(at),
            _ => self.schedule_read(at),
        }
        if self.current.is_none() {
            self.publish_absence(error.code(), &text, now.until(at));
        } else {
            self.record_stale(error.code(), &text);
        }
    }

    /// Records that the secret in use could not be read again.
    fn record_stale(&self, code: Option<ErrorCode>, error: &str) {
        self.deps.publisher.record_update_error(code, error);
        if let Some(health) = &self.deps.health {
            health.warn(code, format!("the secret could not be read again: {error}"));
        }
    }

    fn schedule_retry(&mut self, now: ClockReading, failure: ReadFailure, retry_after: Option<Duration>) {
        let interval = self.options.interval;
        self.retries.record_failure(now, failure, retry_after, interval, &self.deps.retry_budget, random_unit());
    }
}

/// Advice for a write whose result cannot be used.
const NOT_REPEATED: &str = "the write may have created something, so that it is not repeated before the next start";
