//! Tokens of a caller's processes: one for each, created on its first request.

mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_http::peer::{PeerIdentity, PinnedProcess};
use keyward_machine::clock::Clock;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::task::{LiveSlot, ProcessToken};
use super::metrics::{CallerTokenLabels, CallerTokenMetrics};
use super::token::CallerToken;
use super::token_revoker::TokenRevoker;
use crate::callers::{CallerRegistry, unit_of_cgroup};
use crate::secrets::{
    CreationLimit, CreationRefusal, DerivedTokenDeps, DerivedTokenKind, DerivedTokenManager, DerivedTokenOptions,
    describe_failure,
};
use crate::server_client::ServerClient;
use crate::token::SessionHandle;

/// Collaborators of the tokens of a caller's processes.
#[derive(Debug)]
pub struct ProcessTokenDeps {
    /// Name of the caller.
    pub caller: String,
    /// Options of each token; the metadata of the process is added.
    pub options: DerivedTokenOptions,
    /// Client of the session's server.
    pub upstream: ServerClient,
    /// The session's namespace; `None` for the root.
    pub namespace: Option<String>,
    /// The session's token.
    pub session: SessionHandle,
    /// Warns while no token can be created. It is no condition of readiness.
    pub health: HealthHandle,
    /// Counts live tokens in the status.
    pub registry: CallerRegistry,
    /// Counts tokens and revocations.
    pub metrics: Metrics,
    /// Source of the current time.
    pub clock: Clock,
}

/// Tokens of a caller's processes for one session. Clones share them.
#[derive(Debug, Clone)]
pub struct ProcessTokens {
    table: Arc<ProcessTable>,
    /// Taken by the task that runs them.
    started: Arc<Mutex<Option<mpsc::UnboundedReceiver<ProcessToken>>>>,
}

#[derive(Debug)]
struct ProcessTable {
    deps: ProcessTokenDeps,
    revoker: TokenRevoker,
    creation_limit: Arc<CreationLimit>,
    slots: Arc<Semaphore>,
    count: Arc<AtomicUsize>,
    entries: Mutex<HashMap<u32, TableEntry>>,
    starts: mpsc::UnboundedSender<ProcessToken>,
}

#[derive(Debug)]
struct TableEntry {
    process: Arc<PinnedProcess>,
    token: CallerToken,
}

/// Reason why a process gets no caller token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessTokenRefusal {
    /// No token is derived from that session.
    NoSource,
    /// The kernel does not report the process of this connection.
    NoProcess,
    /// The process has ended.
    Ended,
    /// The limit of live tokens is reached.
    Full { max: usize, retry_after: Duration },
    /// Too many tokens were created.
    RateLimited { retry_after: Duration },
    /// The session has no token, or the last creation failed.
    Unavailable { reason: Arc<str>, retry_after: Duration },
}

/// Largest number of live tokens of one caller's processes for one session.
pub(crate) const MAX_PROCESS_TOKENS: usize = 64;

/// `Retry-After` while the limit is reached: long enough to revoke the token of an ended process.
const RETRY_AFTER_FULL: Duration = Duration::from_secs(2);

impl ProcessTokens {
    /// Creates an empty table. [`ProcessTokens::run`] creates, renews and revokes its tokens.
    pub fn new(deps: ProcessTokenDeps) -> Self {
        let (starts, started) = mpsc::unbounded_channel();
        let revoker = TokenRevoker {
            upstream: deps.upstream.clone(),
            namespace: deps.namespace.clone(),
            session: deps.session.watch.clone(),
            clock: deps.clock.clone(),
            denied: Mutex::default(),
        };
        let table = ProcessTable {
            revoker,
            creation_limit: Arc::new(CreationLimit::new(deps.clock.now())),
            slots: Arc::new(Semaphore::new(MAX_PROCESS_TOKENS)),
            count: deps.registry.token_count(&deps.caller),
            entries: Mutex::default(),
            starts,
            deps,
        };
        table.publish();
        Self { table: Arc::new(table), started: Arc::new(Mutex::new(Some(started))) }
    }

    /// Runs until `stop` is cancelled, then revokes all tokens. Returns at once the second time.
    pub async fn run(self, stop: CancellationToken) {
        let started = self.started.lock().take();
        let Some(mut started) = started else { return };
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(token) = started.recv() => {
                    running.spawn(Arc::clone(&self.table).maintain_token(token, stop.clone()));
                }
                Some(_) = running.join_next() => self.table.publish(),
            }
        }
        // Queued processes have no token yet, so nothing has to be revoked.
        started.close();
        while running.join_next().await.is_some() {
            self.table.publish();
        }
    }

    /// Returns the session that the tokens derive from.
    pub(super) fn session(&self) -> &SessionHandle {
        &self.table.deps.session
    }

    /// Returns the token of a connection's process. The first request starts its creation; later requests wait for it.
    pub(super) fn get(&self, identity: &PeerIdentity) -> Result<CallerToken, ProcessTokenRefusal> {
        let result = self.table.get(identity);
        if matches!(result, Err(ProcessTokenRefusal::Full { .. })) {
            self.table.publish();
        }
        result
    }
}

impl ProcessTable {
    fn get(&self, identity: &PeerIdentity) -> Result<CallerToken, ProcessTokenRefusal> {
        let process = identity.process().ok_or(ProcessTokenRefusal::NoProcess)?;
        let pid = process.id().ok_or(ProcessTokenRefusal::NoProcess)?;
        let mut entries = self.entries.lock();
        // Check the entry's process after the connection's: while both live, one id is one process. In the other order,
        // the entry's process could end and its id pass to a new process between the two checks.
        let token = entries.get(&pid).filter(|entry| entry.process.is_alive()).map(|entry| entry.token.clone());
        if !process.is_alive() {
            return Err(ProcessTokenRefusal::Ended);
        }
        if let Some(token) = token {
            self.request_missing(&token)?;
            return Ok(token);
        }
        let token = self.start(identity, process)?;
        entries.insert(pid, TableEntry { process: Arc::clone(process), token: token.clone() });
        drop(entries);
        self.publish();
        Ok(token)
    }

    /// Requests the creation of a missing token, as after a new login of the session.
    fn request_missing(&self, token: &CallerToken) -> Result<(), ProcessTokenRefusal> {
        let is_available = token.handle.watch.read(|state| matches!(state.availability, Availability::Available(_)));
        // A creation that was requested has been counted.
        if !is_available && !token.handle.refresh_signal.is_pending() {
            self.check_session()?;
            self.check_limit()?;
            token.handle.refresh_signal.request();
        }
        Ok(())
    }

    fn start(&self, identity: &PeerIdentity, process: &Arc<PinnedProcess>) -> Result<CallerToken, ProcessTokenRefusal> {
        self.check_session()?;
        let permit = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| ProcessTokenRefusal::Full { max: MAX_PROCESS_TOKENS, retry_after: RETRY_AFTER_FULL })?;
        self.check_limit()?;
        let deps = &self.deps;
        let (publisher, watch) = credential_channel("the token of this process is being created");
        let refresh_signal =
            RefreshSignal::with_demand(deps.clock.clone(), deps.session.refresh_signal.demand().clone());
        let token = CallerToken::new(SessionHandle { watch, refresh_signal: refresh_signal.clone() });
        let output = format!("caller {}, process {}", deps.caller, process.id().unwrap_or_default());
        let manager_deps = DerivedTokenDeps {
            publisher,
            upstream: deps.upstream.clone(),
            namespace: deps.namespace.clone(),
            tokens: deps.session.watch.clone(),
            session: deps.session.refresh_signal.clone(),
            refresh_signal: refresh_signal.clone(),
            health: None,
            creation_limit: Some(Arc::clone(&self.creation_limit)),
            clock: deps.clock.clone(),
        };
        let kind = DerivedTokenKind::Child(with_metadata(deps.options.clone(), identity));
        let manager = DerivedTokenManager::new(output.clone(), kind, manager_deps);
        let slot = LiveSlot::new(permit, Arc::clone(&self.count));
        let entry = ProcessToken { id: token.id, output, process: Arc::clone(process), manager, slot };
        refresh_signal.request();
        self.starts.send(entry).map_err(|_| ProcessTokenRefusal::Unavailable {
            reason: "the agent is stopping".into(),
            retry_after: RETRY_AFTER_FULL,
        })?;
        Ok(token)
    }

    fn check_session(&self) -> Result<(), ProcessTokenRefusal> {
        self.deps.session.watch.read(|state| match &state.availability {
            Availability::Available(_) => Ok(()),
            Availability::Unavailable { reason, retry_after } => {
                let retry_after = state.remaining_wait(*retry_after, self.deps.clock.now());
                Err(ProcessTokenRefusal::Unavailable { reason: Arc::clone(reason), retry_after })
            }
        })
    }

    fn check_limit(&self) -> Result<(), ProcessTokenRefusal> {
        self.creation_limit.check(self.deps.clock.now()).map_err(|refusal| match refusal {
            CreationRefusal::RateLimited { retry_after } => ProcessTokenRefusal::RateLimited { retry_after },
            CreationRefusal::Failing { error, retry_after, .. } => {
                ProcessTokenRefusal::Unavailable { reason: describe_failure(&error).into(), retry_after }
            }
        })
    }

    /// Publishes the number of live tokens, and a warning while none can be created.
    fn publish(&self) {
        let live = MAX_PROCESS_TOKENS - self.slots.available_permits();
        let ProcessTokenDeps { caller, health, metrics, clock, .. } = &self.deps;
        let labels = CallerTokenLabels { caller: caller.clone() };
        // Sums over all sessions, and over the table that a reload has replaced.
        let gauge = i64::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        metrics.get::<CallerTokenMetrics>().live.get_or_create(&labels).set(gauge);
        health.set_ready();
        health.set_target(format!("{live} of {MAX_PROCESS_TOKENS} processes"));
        match self.creation_limit.check(clock.now()) {
            Err(CreationRefusal::Failing { code, error, .. }) => health.warn(code, describe_failure(&error)),
            _ if live == MAX_PROCESS_TOKENS => {
                health.warn(None, format!("{live} processes have a token: others are refused until one has ended"));
            }
            _ => health.clear_warning(),
        }
    }
}

/// Adds the process to a token's metadata, which the server's audit shows.
fn with_metadata(mut options: DerivedTokenOptions, identity: &PeerIdentity) -> DerivedTokenOptions {
    let facts = identity.facts();
    let unit = facts.cgroup.as_deref().and_then(unit_of_cgroup).map(str::to_owned);
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    for (name, value) in [("unit", unit), ("uid", number(facts.uid)), ("pid", number(facts.pid))] {
        options.meta.extend(value.map(|value| (name, value)));
    }
    options
}

#[cfg(test)]
mod tests;
