//! Polls the version numbers of secrets in key-value version 2, so that a change on the server is read at once instead of at the next
//! interval. The number is in the secret's metadata, whose response holds no secret.
//!
//! While the server's events are followed ([`super::EventSubscription`]), all versions are asked once at the beginning of each
//! connection, as the events before it are lost, and then every [`REST`].

mod problems;

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::outage::Outage;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::event_connection::EventConnection;
use super::metrics::{SecretMetrics, VersionPollLabels};
use super::registry::{Inner, Refreshable, SecretRegistry};
use super::{SecretOp, SecretRequest, SecretResponse};
use crate::server_client::{CallError, TokenVerdict};
use crate::token::ClientToken;
use problems::{Problem, ProblemKind};

/// Polls the versions of a registry's secrets, one after the other.
#[derive(Debug)]
pub struct VersionPoll {
    registry: Weak<Inner>,
    /// Interval without events; `None` for a poll at the beginning of each connection of events only.
    interval: Option<Duration>,
    events: Option<EventConnection>,
    clock: Clock,
    health: HealthHandle,
    metrics: SecretMetrics,
    secrets: BTreeMap<SecretRequest, Polled>,
    outage: Outage,
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
    problem: Option<Problem>,
}

/// Order of the requests of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Spread over an interval.
    Spread(Duration),
    /// One after the other, after a rest.
    AfterRest(Duration),
    /// One after the other at the beginning of a connection, also those that were refused.
    AtConnection,
    /// None, until a connection of events begins.
    None,
}

/// Answers of a round, by the path of the metadata: a secret may be read by two spellings of its path.
type Answers = BTreeMap<String, Result<Option<u64>, CallError>>;

/// Shortest time between two requests of a session, whatever the number of its secrets: at most ten a second.
const MIN_SPACING: Duration = Duration::from_millis(100);

/// Time after which the server is asked again about a secret that cannot be polled.
const PAUSE: Duration = Duration::from_mins(10);

/// Shortest interval while events are followed: a lost event is found within it.
const REST: Duration = Duration::from_mins(5);

/// Returns the time between two requests, so that `secrets` are each polled once in an interval, or as often as the limit allows.
fn spacing(interval: Duration, secrets: usize, unit: f64) -> Duration {
    let share = interval / u32::try_from(secrets.max(1)).unwrap_or(u32::MAX);
    share.mul_f64(0.2f64.mul_add(unit, 0.9)).max(MIN_SPACING)
}

/// Returns the version that a response of key-value version 2 has.
pub(super) fn version(response: &SecretResponse) -> Option<u64> {
    let fields = response.data.as_map();
    fields.get("data")?;
    fields.get("metadata")?.get("version")?.as_u64()
}

impl VersionPoll {
    /// Creates the poll; `health` shows secrets whose metadata may not be read. With `events`, `interval` is for the time without them.
    pub fn new(
        registry: &SecretRegistry,
        interval: Option<Duration>,
        events: Option<EventConnection>,
        health: HealthHandle,
    ) -> Self {
        health.set_ready();
        let deps = registry.deps();
        let (clock, metrics) = (deps.clock.clone(), deps.metrics.get());
        let (registry, secrets, outage) = (registry.downgrade(), BTreeMap::new(), Outage::default());
        Self { registry, interval, events, clock, health, metrics, secrets, outage }
    }

    /// Polls until `stop` is cancelled or the registry is gone.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.poll_all()).await;
    }

    async fn poll_all(mut self) {
        let mut events = self.events.take().unwrap_or_else(EventConnection::never);
        let mut asked = events.current();
        // Machines that start together do not poll together.
        let start = self.interval.map(|interval| self.clock.now() + interval.mul_f64(random_unit()));
        let clock = self.clock.clone();
        if asked.is_none() {
            tokio::select! {
                () = clock.sleep_until_some(start) => {}
                () = events.changed() => {}
            }
        }
        asked = None;
        loop {
            let connection = events.current();
            let round = match (connection, self.interval) {
                (Some(_), _) if connection != asked => Round::AtConnection,
                (Some(_), Some(interval)) => Round::AfterRest(interval.max(REST)),
                (None, Some(interval)) => Round::Spread(interval),
                (_, None) => Round::None,
            };
            asked = connection;
            let is_over = tokio::select! {
                goes_on = self.poll_once(round) => !goes_on,
                () = events.changed() => false,
            };
            if is_over {
                return;
            }
        }
    }

    /// Polls each secret that is due once; false if the registry is gone. It may be dropped while it waits.
    async fn poll_once(&mut self, round: Round) -> bool {
        let registry = self.registry.clone();
        // The registry is not kept while this waits.
        let in_use = || registry.upgrade().map(SecretRegistry::from_inner);
        let (interval, shortest) = match round {
            Round::Spread(interval) => (interval, interval),
            Round::AfterRest(rest) => {
                self.clock.sleep(rest.mul_f64(0.2f64.mul_add(random_unit(), 0.9))).await;
                (Duration::ZERO, Duration::ZERO)
            }
            Round::AtConnection => (Duration::ZERO, Duration::ZERO),
            Round::None => std::future::pending().await,
        };
        let Some(secrets) = in_use().map(|registry| registry.refreshables()) else { return false };
        let secrets: Vec<Refreshable> = secrets.into_iter().filter(|secret| is_candidate(&secret.request)).collect();
        self.secrets.retain(|request, _| secrets.iter().any(|secret| secret.request == *request));
        self.report();
        let due = |secret: &&Refreshable| self.is_due(&secret.request, round);
        let polled: Vec<&Refreshable> = secrets.iter().filter(due).collect();
        let calls = self.count_paths(&polled);
        let mut answers = Answers::new();
        for secret in &polled {
            let is_answered = self.known_path(&secret.request).is_some_and(|path| answers.contains_key(path));
            if !is_answered {
                self.clock.sleep(spacing(interval, calls, random_unit())).await;
            }
            let Some(registry) = in_use() else { return false };
            self.poll(&registry, secret, round, &mut answers).await;
        }
        if polled.is_empty() {
            self.clock.sleep(shortest).await;
        }
        true
    }

    fn is_due(&self, request: &SecretRequest, round: Round) -> bool {
        let Some(secret) = self.secrets.get(request) else { return true };
        let is_paused = secret.paused_until.is_some_and(|until| !self.clock.has_reached(until));
        !is_paused || round == Round::AtConnection && secret.problem.is_some()
    }

    fn known_path(&self, request: &SecretRequest) -> Option<&str> {
        self.secrets.get(request)?.metadata.as_deref()
    }

    /// Returns the number of requests that these secrets need.
    fn count_paths(&self, secrets: &[&Refreshable]) -> usize {
        let paths: Vec<_> = secrets.iter().map(|secret| self.known_path(&secret.request)).collect();
        let mut known: Vec<_> = paths.iter().copied().flatten().collect();
        let unknown = paths.len() - known.len();
        known.sort_unstable();
        known.dedup();
        known.len() + unknown
    }

    /// Asks for the version of one secret, unless another spelling of its path was answered, and requests a read if it is another one.
    async fn poll(&mut self, registry: &SecretRegistry, secret: &Refreshable, round: Round, answers: &mut Answers) {
        let deps = registry.deps();
        let known = secret.watch.read(|state| match &state.availability {
            Availability::Available(response) => Some(version(response)),
            Availability::Unavailable { .. } => None,
        });
        // A secret that is not there yet, or no longer, is read by its own schedule; so is one in no such store.
        let Some(known) = known else { return };
        let Some(known) = known else { return self.pause(&secret.request) };
        let Some(token) = deps.tokens.peek().availability.available() else { return };
        let Some(path) = self.metadata_path(registry, &secret.request, &token.secret).await else { return };
        let is_first = !answers.contains_key(&path);
        if is_first {
            let answer = self.request_version(registry, &path, &token.secret).await;
            answers.insert(path.clone(), answer);
        }
        let outcome = match answers.get(&path) {
            None => return,
            Some(Ok(current)) => self.compare(secret, known, *current, is_first),
            Some(Err(error)) => {
                // The secret may have changed before the connection of events.
                if round == Round::AtConnection && error.verdict() != TokenVerdict::Unavailable {
                    request_read(secret);
                }
                self.record_error(&secret.request, &path, error, is_first)
            }
        };
        if is_first {
            self.metrics.version_polls.get_or_create(&VersionPollLabels { outcome }).inc();
        }
        self.update_outage(&path);
    }

    async fn request_version(
        &self,
        registry: &SecretRegistry,
        path: &str,
        token: &ClientToken,
    ) -> Result<Option<u64>, CallError> {
        let deps = registry.deps();
        let request = SecretRequest::read(path);
        let permit = registry.circuit_breaker().acquire(path).await;
        let answer = deps.upstream.request_secret(Some(token), &request, deps.namespace.as_deref()).await;
        permit.record(!answer.as_ref().is_err_and(|error| error.verdict() == TokenVerdict::Unavailable));
        answer.map(|metadata| metadata.data.as_map().get("current_version").and_then(Value::as_u64))
    }

    /// Compares the version that was read with that on the server; returns the poll's outcome. `logs` is true for one spelling of a path.
    fn compare(&mut self, secret: &Refreshable, known: u64, current: Option<u64>, logs: bool) -> &'static str {
        let polled = self.secrets.entry(secret.request.clone()).or_default();
        polled.paused_until = None;
        let problem = polled.problem.take();
        if logs && problem.is_some_and(|problem| problem.kind != ProblemKind::Outage) {
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
        let Some((version, polls)) = polled.newer else { return "unchanged" };
        // The version may be deleted, or the server that was read lags behind: it is read again, ever more rarely.
        if polls.is_power_of_two() {
            request_read(secret);
        }
        if polls > 1 {
            return "unchanged";
        }
        tracing::debug!(
            event = "agent.secret.version_changed",
            path = secret.request.path,
            version,
            "the secret has another version, which is read now"
        );
        "changed"
    }

    /// Returns the path of a secret's metadata; `None` if it cannot be polled.
    async fn metadata_path(
        &mut self,
        registry: &SecretRegistry,
        request: &SecretRequest,
        token: &ClientToken,
    ) -> Option<String> {
        if let Some(path) = self.known_path(request) {
            return Some(path.to_owned());
        }
        let deps = registry.deps();
        let path = deps.upstream.versioned_metadata_path(token, request, deps.namespace.as_deref()).await;
        if path.is_none() {
            self.pause(request);
        }
        self.secrets.entry(request.clone()).or_default().metadata.clone_from(&path);
        path
    }

    fn pause(&mut self, request: &SecretRequest) {
        let until = self.clock.now() + PAUSE;
        self.secrets.entry(request.clone()).or_default().paused_until = Some(until);
    }
}

/// Requests a read of a secret, whatever was requested before. The caller bounds how often.
pub(super) fn request_read(secret: &Refreshable) {
    secret.signal.allow_one();
    secret.signal.request();
}

/// Returns true for a read of a secret's latest version.
pub(super) fn is_candidate(request: &SecretRequest) -> bool {
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
