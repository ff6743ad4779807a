//! Registry of the secrets that templates use: each is read and renewed once, however many use it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use keyward_credentials::credential_watch::{CredentialWatch, RefreshSignal, credential_channel};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::resume_panic;
use keyward_telemetry::metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::circuit_breaker::CircuitBreaker;
use super::persisted_secrets::{OfflineOptions, PersistedSecrets};
use super::renewer::{SecretRenewer, SecretRenewerDeps};
use super::retry::QuickRetryBudget;
use super::{SecretOptions, SecretRequest, SecretResponse};
use crate::encrypted_file::KeyDerivationError;
use crate::server_client::ServerClient;
use crate::token::TokenWatch;

/// Collaborators of a [`SecretRegistry`].
#[derive(Debug, Clone)]
pub struct SecretRegistryDeps {
    /// Client of the session's server.
    pub upstream: ServerClient,
    /// The session's token.
    pub tokens: TokenWatch,
    /// Requests a check by the session after the server refused its token.
    pub session: RefreshSignal,
    /// The namespace of the server; `None` for the root.
    pub namespace: Option<String>,
    /// Time between reads of a secret without a lease.
    pub interval: Duration,
    /// Time between writes whose result tells no end; `None` for never.
    pub rewrite_interval: Option<Duration>,
    /// Source of the current time.
    pub clock: Clock,
    /// Metrics that this work updates.
    pub metrics: Metrics,
    /// Options for keeping secrets over a restart, and the names that the file is bound to besides the server's address.
    pub offline: Option<(OfflineOptions, Vec<String>)>,
}

/// Hands out subscriptions to secrets. Clones share the secrets.
#[derive(Debug, Clone)]
pub struct SecretRegistry(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    deps: SecretRegistryDeps,
    circuit_breaker: CircuitBreaker,
    retry_budget: QuickRetryBudget,
    secrets: Mutex<BTreeMap<SecretRequest, SharedSecret>>,
    /// Notified of each secret that is added.
    added: Arc<Notify>,
    commands: mpsc::UnboundedSender<Command>,
}

/// A secret with subscriptions, or with none for less than [`LINGER`].
#[derive(Debug)]
struct SharedSecret {
    watch: CredentialWatch<SecretResponse>,
    refresh_signal: RefreshSignal,
    subscriptions: usize,
    stop: CancellationToken,
}

#[derive(Debug)]
enum Command {
    Run(Box<SecretRenewer<SecretResponse>>, CancellationToken),
    Unsubscribed(SecretRequest),
}

/// Runs the renewers of a registry as one task.
#[derive(Debug)]
pub struct RegistryWorker {
    clock: Clock,
    commands: mpsc::UnboundedReceiver<Command>,
    tokens: TokenWatch,
    persisted: Option<PersistedSecrets>,
    registry: Weak<Inner>,
}

/// A subscription to one secret, which is renewed while there is one.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The secret.
    pub watch: CredentialWatch<SecretResponse>,
    request: SecretRequest,
    registry: SecretRegistry,
}

/// A secret of a registry, as a request sees it.
pub(super) struct Refreshable {
    pub(super) request: SecretRequest,
    pub(super) watch: CredentialWatch<SecretResponse>,
    pub(super) signal: RefreshSignal,
}

impl SecretRegistry {
    /// Creates an empty registry and its worker.
    pub fn new(deps: SecretRegistryDeps) -> Result<(Self, RegistryWorker), KeyDerivationError> {
        let (sender, commands) = mpsc::unbounded_channel();
        let clock = deps.clock.clone();
        let circuit_breaker = CircuitBreaker::new(clock.clone());
        let tokens = deps.tokens.clone();
        let persisted = match &deps.offline {
            None => None,
            Some((offline, bound)) => {
                let names: Vec<_> = bound.iter().map(String::as_str).chain([deps.upstream.address()]).collect();
                Some(PersistedSecrets::new(offline, &names)?)
            }
        };
        let inner = Arc::new(Inner {
            deps,
            circuit_breaker,
            retry_budget: QuickRetryBudget::default(),
            secrets: Mutex::default(),
            added: Arc::default(),
            commands: sender,
        });
        let worker = RegistryWorker { clock, commands, tokens, persisted, registry: Arc::downgrade(&inner) };
        Ok((Self(inner), worker))
    }

    /// Subscribes to a secret. The first subscription reads it; it is renewed until `LINGER` after the last one has ended.
    pub(crate) fn subscribe(&self, request: &SecretRequest) -> Subscription {
        let mut secrets = self.0.secrets.lock();
        if let Some(secret) = secrets.get_mut(request) {
            secret.subscriptions += 1;
            return Subscription { watch: secret.watch.clone(), request: request.clone(), registry: self.clone() };
        }
        let deps = &self.0.deps;
        let (publisher, watch) = credential_channel(&format!("the secret {} was not read yet", request.path));
        let options = SecretOptions {
            name: request.path.clone(),
            label: "templates".to_owned(),
            request: request.clone(),
            field: String::new(),
            namespace: deps.namespace.clone(),
            interval: deps.interval,
            rewrite_interval: deps.rewrite_interval,
            grace: GRACE,
        };
        let refresh_signal = RefreshSignal::new(deps.clock.clone());
        let renewer_deps = SecretRenewerDeps {
            publisher,
            projection: |_, response, _| Ok(response.clone()),
            upstream: deps.upstream.clone(),
            tokens: deps.tokens.clone(),
            session: deps.session.clone(),
            refresh_signal: refresh_signal.clone(),
            clock: deps.clock.clone(),
            health: None,
            circuit_breaker: Some(self.0.circuit_breaker.clone()),
            retry_budget: self.0.retry_budget.clone(),
            metrics: deps.metrics.clone(),
        };
        let stop = CancellationToken::new();
        let shared = SharedSecret { watch: watch.clone(), refresh_signal, subscriptions: 1, stop: stop.clone() };
        secrets.insert(request.clone(), shared);
        self.0.added.notify_one();
        // Sending only fails during shutdown.
        let _ = self.0.commands.send(Command::Run(Box::new(SecretRenewer::new(options, renewer_deps)), stop));
        Subscription { watch, request: request.clone(), registry: self.clone() }
    }

    /// Returns the session's server, its token, and the settings of its secrets.
    pub(crate) fn deps(&self) -> &SecretRegistryDeps {
        &self.0.deps
    }

    /// Returns the breaker that limits the calls of all secrets of the session.
    pub(crate) fn circuit_breaker(&self) -> &CircuitBreaker {
        &self.0.circuit_breaker
    }

    /// Returns the budget of quick retries that all secrets of the session share.
    pub(crate) fn retry_budget(&self) -> &QuickRetryBudget {
        &self.0.retry_budget
    }

    /// Returns the time between writes whose result tells no end; `None` for never.
    pub(crate) fn rewrite_interval(&self) -> Option<Duration> {
        self.0.deps.rewrite_interval
    }

    /// Returns the secrets that something uses.
    pub(super) fn refreshables(&self) -> Vec<Refreshable> {
        let secrets = self.0.secrets.lock();
        let used = secrets.iter().filter(|(_, secret)| secret.subscriptions > 0);
        let refreshable = |(request, secret): (&SecretRequest, &SharedSecret)| Refreshable {
            request: request.clone(),
            watch: secret.watch.clone(),
            signal: secret.refresh_signal.clone(),
        };
        used.map(refreshable).collect()
    }

    /// Returns the requests of secrets that something uses and that `holds` is true for.
    pub(super) fn requests_where(&self, holds: impl Fn(&SecretRequest) -> bool) -> Vec<SecretRequest> {
        let secrets = self.0.secrets.lock();
        let used = secrets.iter().filter(|(_, secret)| secret.subscriptions > 0).map(|(request, _)| request);
        used.filter(|request| holds(request)).cloned().collect()
    }

    /// Returns what is notified of each secret that is added; for one waiting task.
    pub(super) fn added(&self) -> Arc<Notify> {
        Arc::clone(&self.0.added)
    }

    /// Takes one call for a secret that fails from the budget that all secrets share; false if it is used up.
    pub(crate) fn may_retry(&self) -> bool {
        self.0.retry_budget.try_take(self.0.deps.clock.now())
    }

    pub(super) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(super) const fn from_inner(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Number of secrets.
    pub fn len(&self) -> usize {
        self.0.secrets.lock().len()
    }

    /// Returns true if there is no secret.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut secrets = self.registry.0.secrets.lock();
        if let Some(secret) = secrets.get_mut(&self.request) {
            secret.subscriptions = secret.subscriptions.saturating_sub(1);
            if secret.subscriptions == 0 {
                let _ = self.registry.0.commands.send(Command::Unsubscribed(self.request.clone()));
            }
        }
    }
}

impl RegistryWorker {
    /// Runs the renewers until `stop` is cancelled, and saves the secrets if a file is configured. Leases are not revoked: outputs
    /// that were rendered from them may outlive this process.
    pub async fn run(mut self, stop: CancellationToken) {
        let clock = self.clock.clone();
        let tokens = self.tokens.clone();
        let Some(persisted) = self.persisted.clone() else { return self.run_renewers(stop).await };
        let mut writer = persisted.writer();
        persisted.load(clock.now()).await;
        tokio::select! {
            () = self.run_renewers(stop) => {}
            () = persisted.save_changes(&clock, &tokens, &mut writer) => {}
        }
        persisted.finish(&clock, &tokens, writer).await;
    }

    async fn run_renewers(&mut self, stop: CancellationToken) {
        let mut renewers = JoinSet::new();
        let mut lingering = JoinSet::new();
        let clock = self.clock.clone();
        if self.persisted.is_some() {
            lingering.spawn(linger(clock.clone(), None));
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(Command::Run(renewer, stop)) => {
                        let renewer = match &self.persisted {
                            Some(persisted) => (*renewer).with_persistence(persisted),
                            None => *renewer,
                        };
                        renewers.spawn(renewer.run(stop));
                    }
                    Some(Command::Unsubscribed(request)) => {
                        lingering.spawn(linger(clock.clone(), Some(request)));
                    }
                    None => break,
                },
                // A lost renewer would leave its templates as they are, without an error.
                Some(ended) = renewers.join_next() => {
                    resume_panic(ended);
                }
                Some(Ok(request)) = lingering.join_next() => self.remove_unused(request.as_ref()),
            }
        }
    }

    /// Removes a secret without subscriptions; with `None`, restored secrets that were never requested.
    fn remove_unused(&self, request: Option<&SecretRequest>) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut secrets = registry.secrets.lock();
        match (request, &self.persisted) {
            (Some(request), persisted) => {
                if secrets.get(request).is_some_and(|secret| secret.subscriptions == 0)
                    && let Some(secret) = secrets.remove(request)
                {
                    secret.stop.cancel();
                    if let Some(persisted) = persisted {
                        persisted.remove(request);
                    }
                }
            }
            (None, Some(persisted)) => persisted.retain(|request| secrets.contains_key(request)),
            (None, None) => {}
        }
    }
}

async fn linger(clock: Clock, request: Option<SecretRequest>) -> Option<SecretRequest> {
    clock.sleep(LINGER).await;
    request
}

/// Time that an unused secret is kept: a reload ends a subscription and starts it again.
const LINGER: Duration = Duration::from_mins(1);

/// Time before a replaced lease is revoked: programs may read late what was rendered from its successor.
const GRACE: Duration = Duration::from_hours(1);
