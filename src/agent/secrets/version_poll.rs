//! Polls the version numbers of secrets in key-value version 2, so that a change on the server is read at once instead of at the next
//! interval. The number is in the secret's metadata, whose response holds no secret.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::metrics::{SecretMetrics, VersionPollLabels};
use super::registry::{Inner, Refreshable, SecretRegistry};
use super::{SecretOp, SecretRequest, SecretResponse};
use crate::server_client::{CallError, TokenVerdict};
use crate::token::ClientToken;

/// Polls the versions of a registry's secrets, one after the other.
#[derive(Debug)]
pub struct VersionPoll {
    registry: Weak<Inner>,
    interval: Duration,
    clock: Clock,
    health: HealthHandle,
    metrics: SecretMetrics,
    secrets: BTreeMap<SecretRequest, Polled>,
}

/// State of one secret.
#[derive(Debug, Default)]
struct Polled {
    /// Path of its metadata; `None` before the server was asked for its mount.
    metadata: Option<String>,
    /// Version on the server that is not the one that was read, and the number of polls that found it.
    newer: Option<(u64, u32)>,
    /// Time until which it is not polled, as it is in no such store, or its metadata may not be read.
    paused_until: Option<ClockReading>,
    is_denied: bool,
}

/// Shortest time between two requests of a session, whatever the number of its secrets: at most ten a second.
const MIN_SPACING: Duration = Duration::from_millis(100);

/// Time after which the server is asked again about a secret that cannot be polled.
const PAUSE: Duration = Duration::from_mins(10);

/// Returns the time between two requests, so that `secrets` are each polled once in an interval, or as often as the limit allows.
fn spacing(interval: Duration, secrets: usize, unit: f64) -> Duration {
    let share = interval / u32::try_from(secrets.max(1)).unwrap_or(u32::MAX);
    share.mul_f64(0.2f64.mul_add(unit, 0.9)).max(MIN_SPACING)
}

/// Returns the version that a response of key-value version 2 has.
fn version(response: &SecretResponse) -> Option<u64> {
    let fields = response.data.as_map();
    fields.get("data")?;
    fields.get("metadata")?.get("version")?.as_u64()
}

impl VersionPoll {
    /// Creates the poll; `health` shows secrets whose metadata may not be read.
    pub fn new(registry: &SecretRegistry, interval: Duration, health: HealthHandle) -> Self {
        health.set_ready();
        let deps = registry.deps();
        let (clock, metrics) = (deps.clock.clone(), deps.metrics.get());
        Self { registry: registry.downgrade(), interval, clock, health, metrics, secrets: BTreeMap::new() }
    }

    /// Polls until `stop` is cancelled or the registry is gone.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.poll_all()).await;
    }

    async fn poll_all(mut self) {
        let registry = self.registry.clone();
        // Machines that start together do not poll together.
        self.clock.sleep(self.interval.mul_f64(random_unit())).await;
        // The registry is not kept while this waits.
        let in_use = || registry.upgrade().map(SecretRegistry::from_inner);
        while let Some(secrets) = in_use().map(|registry| registry.refreshables()) {
            let secrets: Vec<Refreshable> =
                secrets.into_iter().filter(|secret| is_candidate(&secret.request)).collect();
            self.secrets.retain(|request, _| secrets.iter().any(|secret| secret.request == *request));
            self.report();
            let polled: Vec<_> = secrets.iter().filter(|secret| self.is_due(&secret.request)).collect();
            for secret in &polled {
                self.clock.sleep(spacing(self.interval, polled.len(), random_unit())).await;
                let Some(registry) = in_use() else { return };
                self.poll(&registry, secret).await;
            }
            if polled.is_empty() {
                self.clock.sleep(self.interval).await;
            }
        }
    }

    fn is_due(&self, request: &SecretRequest) -> bool {
        let paused = self.secrets.get(request).and_then(|secret| secret.paused_until);
        paused.is_none_or(|until| self.clock.has_reached(until))
    }

    /// Asks for the version of one secret, and requests a read if it is another one.
    async fn poll(&mut self, registry: &SecretRegistry, secret: &Refreshable) {
        let deps = registry.deps();
        let known = secret.watch.read(|state| match &state.availability {
            Availability::Available(response) => Some(version(response)),
            Availability::Unavailable { .. } => None,
        });
        // A secret that is not there yet, or no longer, is read by its own schedule; so is one in no such store.
        let Some(known) = known else { return };
        let Some(known) = known else { return self.pause(&secret.request, false) };
        let Some(token) = deps.tokens.peek().availability.available() else { return };
        let Some(path) = self.metadata_path(registry, &secret.request, &token.secret).await else { return };
        let request = SecretRequest::read(path.as_str());
        let permit = registry.circuit_breaker().acquire(&path).await;
        let answer = deps.upstream.request_secret(Some(&token.secret), &request, deps.namespace.as_deref()).await;
        permit.record(!answer.as_ref().is_err_and(|error| error.verdict() == TokenVerdict::Unavailable));
        match answer {
            Ok(metadata) => {
                let current = metadata.data.as_map().get("current_version").and_then(Value::as_u64);
                self.compare(secret, known, current);
            }
            Err(error) => self.record_error(&secret.request, &path, &error),
        }
    }

    fn compare(&mut self, secret: &Refreshable, known: u64, current: Option<u64>) {
        let polled = self.secrets.entry(secret.request.clone()).or_default();
        if std::mem::take(&mut polled.is_denied) {
            tracing::info!(
                event = "agent.secret.version_recovered",
                path = secret.request.path,
                "can read the secret's version again"
            );
        }
        let polls = match (current, polled.newer) {
            (Some(current), Some((newer, polls))) if current == newer => polls.saturating_add(1),
            _ => 1,
        };
        polled.newer = current.filter(|current| *current != known).map(|current| (current, polls));
        let Some((version, polls)) = polled.newer else { return self.count("unchanged") };
        // The version may be deleted, or the server that was read lags behind: it is read again, ever more rarely.
        if polls.is_power_of_two() {
            secret.signal.allow_one();
            secret.signal.request();
        }
        if polls > 1 {
            return self.count("unchanged");
        }
        tracing::debug!(
            event = "agent.secret.version_changed",
            path = secret.request.path,
            version,
            "the secret has another version, which is read now"
        );
        self.count("changed");
    }

    /// Returns the path of a secret's metadata; `None` if it cannot be polled.
    async fn metadata_path(
        &mut self,
        registry: &SecretRegistry,
        request: &SecretRequest,
        token: &ClientToken,
    ) -> Option<String> {
        if let Some(path) = self.secrets.get(request).and_then(|secret| secret.metadata.clone()) {
            return Some(path);
        }
        let deps = registry.deps();
        let path = deps.upstream.versioned_metadata_path(token, request, deps.namespace.as_deref()).await;
        if path.is_none() {
            self.pause(request, false);
        }
        self.secrets.entry(request.clone()).or_default().metadata.clone_from(&path);
        path
    }

    fn record_error(&mut self, request: &SecretRequest, path: &str, error: &CallError) {
        match error.verdict() {
            TokenVerdict::Denied => {
                if !self.secrets.entry(request.clone()).or_default().is_denied {
                    tracing::warn!(
                        event = "agent.secret.version_denied",
                        path,
                        code = ErrorCode::AccessDenied.as_str(),
                        error = error.to_string(),
                        "may not read the version of a secret, so that a change waits for the interval; the policy needs read on this path"
                    );
                }
                self.pause(request, true);
                self.count("denied");
            }
            _ => self.count("failed"),
        }
    }

    fn pause(&mut self, request: &SecretRequest, is_denied: bool) {
        let until = self.clock.now() + PAUSE;
        let secret = self.secrets.entry(request.clone()).or_default();
        (secret.paused_until, secret.is_denied) = (Some(until), is_denied);
    }

    /// Shows which secrets are not followed.
    fn report(&self) {
        let mut denied = self.secrets.iter().filter(|(_, secret)| secret.is_denied).map(|(request, _)| &request.path);
        match denied.next() {
            None => self.health.clear_warning(),
            Some(first) => {
                let more = denied.count();
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                let text = format!("the policy denies the metadata of {first}{more}: changes wait for the interval");
                self.health.warn(ErrorCode::AccessDenied, text);
            }
        }
    }

    fn count(&self, outcome: &'static str) {
        self.metrics.version_polls.get_or_create(&VersionPollLabels { outcome }).inc();
    }
}

/// Returns true for a read of a secret's latest version.
fn is_candidate(request: &SecretRequest) -> bool {
    request.op == SecretOp::Read && !request.path.contains('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_over_the_interval_and_at_most_ten_a_second() {
        let check = |interval: u64, secrets: usize, expected: u128| {
            let found = spacing(Duration::from_secs(interval), secrets, 0.5).as_millis();
            assert_eq!(found, expected, "{interval} s for {secrets}");
        };
        check(2, 0, 2000);
        check(2, 1, 2000);
        check(2, 4, 500);
        check(2, 20, 100);
        check(2, 1000, 100);
        check(60, 100, 600);
    }
}
