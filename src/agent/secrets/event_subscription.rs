//! Follows the events of a session's server, so that a changed secret is read at once, without a poll.
//!
//! An event is a hint: the secret that it names is read as a poll would have it read, at the pace of [`EventReads`]. Events are
//! delivered at most once, and none before the connection; [`super::VersionPoll`] finds what they miss.

mod report;

use std::sync::Weak;
use std::time::Duration;

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::Availability;
use keyward_http::client::{ReceivedMessage, WebSocket};
use keyward_machine::clock::Clock;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::outage::Outage;
use tokio_util::sync::CancellationToken;

use super::SecretRequest;
use super::event::SecretEvent;
use super::event_connection::{EventConnection, EventConnectionPublisher};
use super::event_reads::EventReads;
use super::metrics::SecretMetrics;
use super::registry::{Inner, Refreshable, SecretRegistry};
use super::version_poll::{is_candidate, request_read, version};
use crate::retry_budget::spread_retry_after;
use crate::server_client::{CallError, SubscriptionRefusal, TokenVerdict};
use crate::token::{Generation, Token, TokenWatch};

/// Keeps one connection for events while the session has a token and secrets.
#[derive(Debug)]
pub struct EventSubscription {
    registry: Weak<Inner>,
    session: String,
    clock: Clock,
    health: HealthHandle,
    metrics: SecretMetrics,
    connection: EventConnectionPublisher,
    backoff: Backoff,
    outage: Outage,
    /// Refusal that was logged last; `None` after a connection.
    logged: Option<SubscriptionRefusal>,
    reads: EventReads,
}

/// Reason why a connection or a wait is over.
enum End {
    /// The session has another token, or none.
    Token,
    /// The session or the registry is gone.
    Session,
    /// No connection was opened.
    Refused(CallError),
    /// The connection has ended.
    Ended(CallError),
}

/// Silence after which a ping is sent. Vault pings every 30 s, so that none is.
const PING_AFTER: Duration = Duration::from_mins(1);

/// Time for the answer to a ping.
const PONG_WITHIN: Duration = Duration::from_secs(30);

/// Time after which a connection counts as a success: one that is cut at once is not opened in a loop.
const STABLE_AFTER: Duration = Duration::from_mins(5);

/// Wait after a refusal by a policy, which is corrected on the server.
const DENIED_WAIT: Duration = Duration::from_mins(10);

/// Wait before a server that has no events is asked again: it may be another one by then.
const ABSENT_WAIT: Duration = Duration::from_hours(1);

impl EventSubscription {
    /// Creates the subscription of a session, and the state of its connection. `health` shows it.
    pub fn new(registry: &SecretRegistry, session: &str, health: HealthHandle) -> (Self, EventConnection) {
        let deps = registry.deps();
        let (connection, state) = EventConnectionPublisher::new();
        let subscription = Self {
            registry: registry.downgrade(),
            session: session.to_owned(),
            clock: deps.clock.clone(),
            health,
            metrics: deps.metrics.get(),
            connection,
            backoff: Backoff::UPSTREAM,
            outage: Outage::default(),
            logged: None,
            reads: EventReads::new(),
        };
        subscription.show_connected(false);
        (subscription, state)
    }

    /// Follows the events until `stop` is cancelled, or the session has ended.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(mut self) {
        let Some(mut tokens) = self.in_use().map(|registry| registry.deps().tokens.clone()) else { return };
        loop {
            let Some(token) = usable_token(&mut tokens).await else { return };
            if self.wait_for_secrets().await.is_none() {
                return;
            }
            let end = self.connect(&token, &mut tokens).await;
            self.close();
            let wait = match end {
                End::Session => return,
                End::Token => continue,
                End::Refused(error) => self.record_refusal(&error),
                End::Ended(error) => self.record_ended(&error),
            };
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                end = other_token(&mut tokens, token.generation) => match end {
                    End::Session => return,
                    // Another token may have other rights, and may be of another server.
                    _ => self.backoff.reset(),
                },
            }
        }
    }

    fn in_use(&self) -> Option<SecretRegistry> {
        self.registry.upgrade().map(SecretRegistry::from_inner)
    }

    /// Waits until the session has secrets that events can be about; `None` if the registry is gone.
    async fn wait_for_secrets(&self) -> Option<()> {
        loop {
            let added = {
                let registry = self.in_use()?;
                if !registry.requests_where(is_candidate).is_empty() {
                    return Some(());
                }
                registry.added()
            };
            added.notified().await;
        }
    }

    /// Opens a connection, and follows it to its end.
    async fn connect(&mut self, token: &Token, tokens: &mut TokenWatch) -> End {
        let Some(registry) = self.in_use() else { return End::Session };
        let (upstream, namespace) = (registry.deps().upstream.clone(), registry.deps().namespace.clone());
        drop(registry);
        let subscribed = tokio::select! {
            subscribed = upstream.subscribe_events(&token.secret, namespace.as_deref()) => subscribed,
            end = other_token(tokens, token.generation) => return end,
        };
        match subscribed {
            Ok(mut socket) => {
                self.record_connection();
                let opened = self.clock.now();
                let end = tokio::select! {
                    end = self.receive(&mut socket, namespace.as_deref()) => end,
                    end = other_token(tokens, token.generation) => end,
                };
                if self.clock.now().since(opened) >= STABLE_AFTER {
                    self.backoff.reset();
                }
                self.count_connection("ended");
                self.close();
                socket.close().await;
                end
            }
            Err(error) => {
                let is_refused = !matches!(SubscriptionRefusal::from_error(&error), SubscriptionRefusal::Outage);
                self.count_connection(if is_refused { "refused" } else { "failed" });
                self.suspect_token(&error);
                End::Refused(error)
            }
        }
    }

    /// Receives events until the connection ends or is silent.
    async fn receive(&mut self, socket: &mut WebSocket, namespace: Option<&str>) -> End {
        let clock = self.clock.clone();
        let (mut heard, mut is_asked, mut has_invalid) = (clock.now(), false, false);
        loop {
            let read_at = self.reads.next(clock.now());
            let silent_at = heard + if is_asked { PING_AFTER + PONG_WITHIN } else { PING_AFTER };
            tokio::select! {
                message = socket.next() => match message {
                    Ok(message) => {
                        (heard, is_asked) = (clock.now(), false);
                        if let ReceivedMessage::Data(bytes) = message {
                            let is_valid = self.record_message(&bytes, namespace, has_invalid);
                            has_invalid |= !is_valid;
                        }
                    }
                    Err(error) => return End::Ended(error.into()),
                },
                () = clock.sleep_until_some(read_at) => if self.read_due().is_none() {
                    return End::Session;
                },
                () = clock.sleep_until(silent_at) => {
                    let silence = CallError::TimedOut { server: self.server(), after: PING_AFTER + PONG_WITHIN };
                    if is_asked {
                        return End::Ended(silence);
                    }
                    is_asked = true;
                    // A connection whose other end is gone takes no more bytes at some time.
                    match tokio::time::timeout(PONG_WITHIN, socket.ping()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => return End::Ended(error.into()),
                        Err(_) => return End::Ended(silence),
                    }
                }
            }
        }
    }

    fn server(&self) -> String {
        self.in_use().map(|registry| registry.deps().upstream.address().to_owned()).unwrap_or_default()
    }

    /// Plans the reads that an event asks for; false if the message is no event.
    fn record_message(&mut self, message: &[u8], namespace: Option<&str>, is_logged: bool) -> bool {
        let event = match SecretEvent::parse(message) {
            Ok(Some(event)) => event,
            Ok(None) => {
                self.count_event("other");
                return true;
            }
            Err(error) => {
                self.record_invalid(error, is_logged);
                return false;
            }
        };
        let now = self.clock.now();
        let Some(registry) = self.in_use() else { return true };
        let requests = registry.requests_where(|request| event.concerns(request, namespace));
        self.count_event(if requests.is_empty() { "other" } else { "read" });
        for request in &requests {
            let path = event.describe();
            tracing::debug!(event = "agent.secret.events.changed", path, "an event says that a secret has changed");
            self.reads.record(request, event.version, now);
        }
        true
    }

    /// Requests the reads that are due; `None` if the registry is gone.
    fn read_due(&mut self) -> Option<()> {
        let registry = self.in_use()?;
        let secrets = registry.refreshables();
        let find = |request: &SecretRequest| secrets.iter().find(|secret| secret.request == *request);
        let known = |request: &SecretRequest| find(request).and_then(known_version);
        for request in self.reads.take(self.clock.now(), known) {
            let Some(secret) = find(&request) else { continue };
            // Reads of a secret that fails come from the budget of retries, so that an outage costs no more calls.
            if !is_failing(secret) || secret.signal.is_pending() || registry.may_retry() {
                request_read(secret);
            }
        }
        Some(())
    }

    /// Has the session check a token that was refused.
    fn suspect_token(&self, error: &CallError) {
        let Some(registry) = self.in_use() else { return };
        let verdict = error.verdict();
        let may_be_dead = || registry.retry_budget().may_suspect_token(self.clock.now());
        let is_denied = SubscriptionRefusal::from_error(error) == SubscriptionRefusal::Denied;
        if verdict == TokenVerdict::Dead || is_denied && may_be_dead() {
            registry.deps().session.request();
        }
    }

    /// Returns the wait before the next try.
    fn wait_after(&mut self, error: &CallError) -> Duration {
        let unit = random_unit();
        let spread = |wait: Duration| wait.mul_f64(0.2f64.mul_add(unit, 0.9));
        let wait = match SubscriptionRefusal::from_error(error) {
            SubscriptionRefusal::Absent => spread(ABSENT_WAIT),
            SubscriptionRefusal::Denied => spread(DENIED_WAIT),
            SubscriptionRefusal::Redirected | SubscriptionRefusal::Outage => self.backoff.next(unit),
        };
        wait.max(spread_retry_after(error.retry_after(), unit))
    }
}

/// Returns the version of a secret that was read.
fn known_version(secret: &Refreshable) -> Option<u64> {
    secret.watch.read(|state| match &state.availability {
        Availability::Available(response) => version(response),
        Availability::Unavailable { .. } => None,
    })
}

fn is_failing(secret: &Refreshable) -> bool {
    secret
        .watch
        .read(|state| state.update_error.is_some() || matches!(state.availability, Availability::Unavailable { .. }))
}

/// Waits for a token that the server accepts; `None` if the session is gone.
async fn usable_token(tokens: &mut TokenWatch) -> Option<std::sync::Arc<Token>> {
    loop {
        let state = tokens.current();
        if state.awaited.is_none()
            && let Some(token) = state.availability.available()
        {
            return Some(token);
        }
        tokens.changed().await.ok()?;
    }
}

/// Waits until the session has another token than that of `generation`, or none that the server accepts.
async fn other_token(tokens: &mut TokenWatch, generation: Generation) -> End {
    loop {
        let state = tokens.current();
        let is_same = state.awaited.is_none()
            && matches!(&state.availability, Availability::Available(token) if token.generation == generation);
        if !is_same {
            return End::Token;
        }
        if tokens.changed().await.is_err() {
            return End::Session;
        }
    }
}
