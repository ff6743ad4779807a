//! The secrets that somebody uses, each kept once however many use it, through one session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::circuit_breaker::CircuitBreaker;
use super::encrypted_file::EncryptedFileError;
use super::persisted_secrets::{OfflineOptions, PersistedSecrets};
use super::renewer::{SecretRenewer, SecretRenewerDeps};
use super::retry::RetryBudget;
use super::{SecretOptions, SecretRequest, SecretResponse};
use crate::agent::server_client::ServerClient;
use crate::agent::token::TokenWatch;
use crate::clock::Clock;
use crate::credential_watch::{CredentialWatch, RefreshSignal, credential_channel};
use crate::metrics::Metrics;

/// Where the secrets of a store come from.
#[derive(Debug, Clone)]
pub struct SecretRegistryDeps {
    /// The server.
    pub upstream: ServerClient,
    /// The session's token.
    pub tokens: TokenWatch,
    /// Rings the session: the server says that its token is dead.
    pub session: RefreshSignal,
    /// The namespace of the server; `None` for the root.
    pub namespace: Option<String>,
    /// How often a secret without a lease is looked at.
    pub interval: Duration,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where calls are counted.
    pub metrics: Metrics,
    /// How they are kept over a restart, if they are; and what that is bound to, the server apart.
    pub offline: Option<(OfflineOptions, Vec<String>)>,
}

/// Hands out secrets. Clones share them.
#[derive(Debug, Clone)]
pub struct SecretRegistry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: SecretRegistryDeps,
    circuit_breaker: CircuitBreaker,
    retry_budget: RetryBudget,
    kept: Mutex<BTreeMap<SecretRequest, Kept>>,
    orders: mpsc::UnboundedSender<Order>,
}

/// A secret that is kept, or was used until just now.
#[derive(Debug)]
struct Kept {
    watch: CredentialWatch<SecretResponse>,
    uses: usize,
    stop: CancellationToken,
}

#[derive(Debug)]
enum Order {
    Keep(Box<SecretRenewer<SecretResponse>>, CancellationToken),
    Unused(SecretRequest),
}

/// The keepers of a store, which run as one task.
#[derive(Debug)]
pub struct RegistryWorker {
    clock: Clock,
    orders: mpsc::UnboundedReceiver<Order>,
    tokens: TokenWatch,
    persisted: Option<PersistedSecrets>,
    inner: std::sync::Weak<Inner>,
}

/// The use of one secret. While there is one the secret is kept.
#[derive(Debug)]
pub struct Subscription {
    /// The secret.
    pub watch: CredentialWatch<SecretResponse>,
    request: SecretRequest,
    store: SecretRegistry,
}

impl SecretRegistry {
    /// A store that keeps nothing yet, and what keeps for it.
    ///
    /// # Errors
    /// No key could be made of the one that is given to keep secrets over a restart.
    pub fn new(origin: SecretRegistryDeps) -> Result<(Self, RegistryWorker), EncryptedFileError> {
        let (sender, orders) = mpsc::unbounded_channel();
        let clock = origin.clock.clone();
        let (circuit_breaker, tokens) = (CircuitBreaker::new(clock.clone()), origin.tokens.clone());
        let persisted = match &origin.offline {
            None => None,
            Some((offline, bound)) => {
                let names: Vec<_> = bound.iter().map(String::as_str).chain([origin.upstream.address()]).collect();
                Some(PersistedSecrets::new(offline, &names)?)
            }
        };
        let inner = Arc::new(Inner {
            origin,
            circuit_breaker,
            retry_budget: RetryBudget::default(),
            kept: Mutex::default(),
            orders: sender,
        });
        let keepers = RegistryWorker { clock, orders, tokens, persisted, inner: Arc::downgrade(&inner) };
        Ok((Self(inner), keepers))
    }

    /// Uses a secret: it is read, if nobody uses it yet, and kept until a minute after the last use has ended.
    pub fn subscribe(&self, request: &SecretRequest) -> Subscription {
        let mut kept = self.0.kept();
        if let Some(there) = kept.get_mut(request) {
            there.uses += 1;
            return Subscription { watch: there.watch.clone(), request: request.clone(), store: self.clone() };
        }
        let origin = &self.0.origin;
        let (publisher, watch) = credential_channel(&format!("the secret {} has not been read yet", request.path));
        let options = SecretOptions {
            name: request.path.clone(),
            label: "templates".to_owned(),
            request: request.clone(),
            field: String::new(),
            namespace: origin.namespace.clone(),
            interval: origin.interval,
            grace: GRACE,
        };
        let deps = SecretRenewerDeps {
            publisher,
            view: |_, answer, _| Ok(answer.clone()),
            upstream: origin.upstream.clone(),
            tokens: origin.tokens.clone(),
            session: origin.session.clone(),
            refresh_signal: RefreshSignal::new(origin.clock.clone()),
            clock: origin.clock.clone(),
            health: None,
            circuit_breaker: Some(self.0.circuit_breaker.clone()),
            retry_budget: self.0.retry_budget.clone(),
            metrics: origin.metrics.clone(),
        };
        let stop = CancellationToken::new();
        kept.insert(request.clone(), Kept { watch: watch.clone(), uses: 1, stop: stop.clone() });
        // Where nothing keeps any more, the process is about to end.
        let _ = self.0.orders.send(Order::Keep(Box::new(SecretRenewer::new(options, deps)), stop));
        Subscription { watch, request: request.clone(), store: self.clone() }
    }

    /// How many secrets are kept.
    pub fn len(&self) -> usize {
        self.0.kept().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<SecretRequest, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut kept = self.store.0.kept();
        if let Some(there) = kept.get_mut(&self.request) {
            there.uses = there.uses.saturating_sub(1);
            if there.uses == 0 {
                let _ = self.store.0.orders.send(Order::Unused(self.request.clone()));
            }
        }
    }
}

impl RegistryWorker {
    /// Keeps the secrets that are used, until `stop` is cancelled, and writes them down where they outlive a restart. Leases are left to their own end: what was made of them may
    /// outlive this process.
    pub async fn run(mut self, stop: CancellationToken) {
        let (clock, tokens) = (self.clock.clone(), self.tokens.clone());
        let Some(persisted) = self.persisted.clone() else { return self.keep(stop).await };
        let mut writer = persisted.writer();
        persisted.load(clock.now()).await;
        tokio::select! {
            () = self.keep(stop) => {}
            () = persisted.keep(&clock, &tokens, &mut writer) => {}
        }
        persisted.finish(&clock, &tokens, writer).await;
    }

    async fn keep(&mut self, stop: CancellationToken) {
        let mut running = JoinSet::new();
        let mut lingering = JoinSet::new();
        let clock = self.clock.clone();
        if self.persisted.is_some() {
            lingering.spawn(after_a_while(clock.clone(), None));
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                order = self.orders.recv() => match order {
                    Some(Order::Keep(keeper, ended)) => {
                        let keeper = match &self.persisted {
                            Some(persisted) => (*keeper).resuming(persisted),
                            None => *keeper,
                        };
                        running.spawn(keeper.run(ended));
                    }
                    Some(Order::Unused(request)) => {
                        lingering.spawn(after_a_while(clock.clone(), Some(request)));
                    }
                    None => break,
                },
                Some(_) = running.join_next() => {}
                Some(Ok(over)) = lingering.join_next() => self.let_go(over.as_ref()),
            }
        }
    }

    /// Lets go of a secret that nobody uses; of what the last process kept and nobody has asked for.
    fn let_go(&self, over: Option<&SecretRequest>) {
        let Some(inner) = self.inner.upgrade() else { return };
        let mut kept = inner.kept();
        match (over, &self.persisted) {
            (Some(request), persisted) => {
                if kept.get(request).is_some_and(|there| there.uses == 0)
                    && let Some(there) = kept.remove(request)
                {
                    there.stop.cancel();
                    if let Some(persisted) = persisted {
                        persisted.strike(request);
                    }
                }
            }
            (None, Some(persisted)) => persisted.strike_unclaimed(|request| kept.contains_key(request)),
            (None, None) => {}
        }
    }
}

async fn after_a_while(clock: Clock, request: Option<SecretRequest>) -> Option<SecretRequest> {
    clock.sleep(LINGER).await;
    request
}

/// How long a secret is kept that nobody uses: a reload ends a use and begins it again.
const LINGER: Duration = Duration::from_mins(1);

/// How long a lease that was replaced is kept before it is given back: programs may read late what was made of the next one.
const GRACE: Duration = Duration::from_hours(1);
