//! One chain identity -> login -> token manager -> watch, built from its options.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use keyward_agent::callers::CallerRegistry;
use keyward_agent::identity::{AwaitedCertificate, ConsumedSecrets, IdentityMethod, IdentitySource, SharedSource};
use keyward_agent::identity_tokens::IdentityTokens;
use keyward_agent::login::Login;
use keyward_agent::output_command::SharedCommands;
use keyward_agent::output_watch::OutputWatch;
use keyward_agent::rotation::RotationRegistry;
use keyward_agent::secrets::SecretRegistries;
use keyward_agent::server_client::{ServerClient, ServerClientOptions};
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_agent::token::SessionHandle;
use keyward_agent::token_lifecycle::{SessionShutdown, TokenLifecycleOptions, TokenManager, TokenManagerDeps};
use keyward_config::{self as config, Config};
use keyward_credentials::credential_watch::{RefreshSignal, credential_channel};
use keyward_http::server::ActivatedSockets;
use keyward_machine::clock::Clock;
use keyward_machine::command::{ExecutableOpener, Launcher};
use keyward_telemetry::audit::Auditor;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::fingerprint::fingerprint;
use super::reconciler::{self, Claim, Group, Part, Plan, Work};

/// Shared handles that every part gets.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
    pub(super) status_registry: StatusRegistry,
    pub(super) session_statuses: SessionStatusRegistry,
    pub(super) secrets: SecretRegistries,
    pub(super) outputs: OutputWatch,
    pub(super) rotations: RotationRegistry,
    pub(super) callers: CallerRegistry,
    pub(super) auditor: Auditor,
    pub(super) launcher: Launcher,
    pub(super) commands: SharedCommands,
    pub(super) executables: ExecutableOpener,
    /// Services that pages show.
    #[cfg(feature = "ui")]
    pub(super) ui_sources: keyward_ui::Sources,
}

/// Inputs that the parts of a new configuration are built from.
pub(super) struct PlanContext<'a> {
    pub(super) config: &'a Config,
    /// Handles of the sessions that will run, by name.
    pub(super) sources: BTreeMap<String, SessionHandle>,
    /// Tokens of the identities for tools that will run, by name.
    pub(super) identities: BTreeMap<String, IdentityTokens>,
    /// Sessions and identities that are built anew: their users are too.
    pub(super) rebuilt: BTreeSet<String>,
    pub(super) inherited: &'a ActivatedSockets,
    pub(super) shared: &'a Shared,
}

impl PlanContext<'_> {
    /// Returns the options and the handle of a session.
    pub(super) fn session(&self, name: &str) -> anyhow::Result<(&config::Session, &SessionHandle)> {
        let options = self.config.sessions.iter().find(|session| session.name == name);
        options.zip(self.sources.get(name)).with_context(|| format!("there is no session {name}"))
    }

    /// Creates a plan that has no parts yet.
    pub(super) fn plan<O, H>(&self) -> Plan<O, H> {
        Plan::new(&self.rebuilt)
    }
}

/// Returns the login inputs that persisted secrets are bound to, so that another identity cannot read them. The store
/// binds the server's address.
pub(super) fn bound_to(session: &config::Session) -> Vec<String> {
    let login = &session.login;
    // A method without roles is identified by its identity source.
    let path = |path: &PathBuf| path.display().to_string();
    let proof = match &session.identity {
        IdentityMethod::AppRole(options) => path(&options.role_id_file),
        IdentityMethod::TokenFile(file) => path(file),
        IdentityMethod::Certificate { awaited: Some(AwaitedCertificate { svid, .. }) } => {
            format!("{} {}", svid.socket.display(), svid.spiffe_id.as_deref().unwrap_or_default())
        }
        IdentityMethod::Certificate { awaited: None } => {
            let identity = session.upstream.client.tls.identity.as_ref();
            identity.map(|identity| path(&identity.certificate)).unwrap_or_default()
        }
        IdentityMethod::Cloud(_)
        | IdentityMethod::Aws(_)
        | IdentityMethod::Gcp(_)
        | IdentityMethod::CiJob(_)
        | IdentityMethod::WorkloadApi(_)
        | IdentityMethod::Jwt(_) => String::new(),
    };
    let namespace = login.namespace.clone().unwrap_or_default();
    vec![session.name.clone(), login.mount.clone(), login.role.clone(), namespace, proof]
}

/// Fingerprint of a file that changes when the file is replaced or written: inode, mtime in seconds and nanoseconds, bytes.
pub(super) type FileFingerprint = (u64, i64, i64, u64);

/// Returns the fingerprint of a file as it is now; `None` if it does not exist.
pub(super) fn file_fingerprint(path: &Path) -> Option<FileFingerprint> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

/// Sessions, by name.
pub(super) type Sessions = Group<SessionOptions, RunningSession>;

/// Change of the sessions by a new configuration. Dropping it changes nothing.
pub(super) type SessionsPlan = Plan<SessionOptions, RunningSession>;

/// Options of a session. They are equal if at most the lifecycle options differ, which a running session applies without a restart.
/// Connections follow the certificate files by themselves.
#[derive(Debug, Clone)]
pub(super) struct SessionOptions(config::Session);

impl PartialEq for SessionOptions {
    fn eq(&self, other: &Self) -> bool {
        let lifecycle = other.0.lifecycle.clone();
        config::Session { lifecycle, ..self.0.clone() } == other.0
    }
}

impl SessionOptions {
    /// Returns true if a token of `before` stays valid for these settings: same server, namespace, role and form. It is
    /// served until the first login.
    fn keeps_token_of(&self, before: &Self) -> bool {
        let new = &self.0;
        let old = &before.0;
        let server = |session: &config::Session| (session.upstream.kind, session.upstream.client.address.clone());
        let login = |session: &config::Session| {
            let login = &session.login;
            (login.namespace.clone(), login.role.clone(), login.wrap_ttl)
        };
        // Without a role, only the identity source identifies the token.
        let same_identity = !new.login.role.is_empty() || new.identity == old.identity;
        server(new) == server(old) && login(new) == login(old) && same_identity
    }

    /// Returns true if this session may use the secrets that the identity source of `before` has consumed.
    fn keeps_consumed_secrets_of(&self, before: &Self) -> bool {
        let new = &self.0;
        let old = &before.0;
        new.login.role == old.login.role && new.identity.has_files_of(&old.identity)
    }
}

/// Handle of a session.
pub(super) struct RunningSession {
    pub(super) source: SessionHandle,
    lifecycle: watch::Sender<TokenLifecycleOptions>,
    /// Secrets that its files no longer hold.
    consumed: ConsumedSecrets,
    /// Takes over the token of the session that this one replaces; `None` if that one's token is not valid for it.
    pub(super) heir: Option<oneshot::Sender<SessionShutdown>>,
    pub(super) end: oneshot::Sender<SessionEnd>,
}

/// End of a session: by default it revokes its token at once, if configured.
#[derive(Debug, Default)]
pub(super) struct SessionEnd {
    /// Receives its token, which is not revoked then.
    pub(super) heir: Option<oneshot::Sender<SessionShutdown>>,
    /// Cancelled by the listeners whose requests in flight use the token: it is revoked after them.
    pub(super) listeners: Vec<CancellationToken>,
}

impl RunningSession {
    /// Returns true if its token is revoked at its end, unless another session takes it over.
    pub(super) fn revokes_on_exit(&self) -> bool {
        self.lifecycle.borrow().revoke_on_exit
    }

    /// Gives the session its lifecycle options of a new configuration.
    pub(super) fn apply(&self, new: &config::Session) {
        self.lifecycle.send_replace(new.lifecycle.clone());
        // A file or role may have been corrected: failing sessions retry at once, others ignore this.
        drop(self.source.refresh_signal.demand().retry());
    }
}

/// Plans the sessions.
pub(super) fn plan(running: &Sessions, new: &[config::Session], shared: &Shared) -> anyhow::Result<SessionsPlan> {
    let mut plan = Plan::new(&BTreeSet::new());
    let mut connections = SharedConnections::default();
    for options in new {
        let options = SessionOptions(options.clone());
        let before = running.running.get(&options.0.name);
        let claim = running.claim(&options.0.name, &[]);
        let build = |claim: &Claim| build(&options, before, &mut connections, claim, shared);
        running.plan(&mut plan, claim, options.clone(), build)?;
    }
    Ok(plan)
}

/// Connections that the sessions of a plan share.
#[derive(Default)]
struct SharedConnections {
    /// Clients of the servers: the TLS configuration of each takes 40 KiB.
    clients: Vec<(ServerClientOptions, ServerClient)>,
    /// Identities of the machine: sessions that log in at the same time share a request.
    identities: Vec<(IdentityMethod, SharedSource)>,
}

impl SharedConnections {
    fn client(&mut self, options: &ServerClientOptions, metrics: &Metrics) -> anyhow::Result<ServerClient> {
        if let Some((_, client)) = self.clients.iter().find(|(built, _)| built == options) {
            return Ok(client.for_another_session());
        }
        let client = ServerClient::build(options)?.with_metrics(metrics);
        self.clients.push((options.clone(), client.clone()));
        Ok(client)
    }

    fn identity(
        &mut self,
        session: &config::Session,
        client: &ServerClient,
        consumed: &ConsumedSecrets,
        clock: Clock,
    ) -> anyhow::Result<Box<dyn IdentitySource>> {
        let build = || session.identity.build_with(clock, client, session.login.namespace.as_deref(), consumed);
        if !session.identity.is_of_machine() {
            return Ok(build()?);
        }
        if let Some((_, source)) = self.identities.iter().find(|(built, _)| *built == session.identity) {
            return Ok(Box::new(source.clone()));
        }
        let source = SharedSource::new(build()?);
        self.identities.push((session.identity.clone(), source.clone()));
        Ok(Box::new(source))
    }
}

/// Builds the chain. It takes over from `before`, the session that it replaces, what may be kept.
fn build(
    session: &SessionOptions,
    before: Option<&Part<SessionOptions, RunningSession>>,
    connections: &mut SharedConnections,
    claim: &Claim,
    shared: &Shared,
) -> anyhow::Result<(RunningSession, Work)> {
    let keeps_consumed = |before: &&Part<_, _>| session.keeps_consumed_secrets_of(&before.options);
    let consumed = before.filter(keeps_consumed).map(|before| before.handle.consumed.clone()).unwrap_or_default();
    let options = &session.0;
    let context = || format!("session {}", options.name);
    let upstream = connections.client(&options.upstream, &shared.metrics).with_context(context)?;
    let identity = connections.identity(options, &upstream, &consumed, shared.clock.clone()).with_context(context)?;
    let login = Login::new(upstream, options.login.clone());
    let (publisher, watch) = credential_channel("no login has succeeded yet");
    let refresh_signal = RefreshSignal::new(shared.clock.clone());
    let deps = TokenManagerDeps {
        publisher,
        identity,
        login,
        connection_files: options.upstream.client.tls.files(),
        refresh_signal: refresh_signal.clone(),
        clock: shared.clock.clone(),
        session_statuses: shared.session_statuses.clone(),
        health: shared.health.register(format!("session/{}", options.name), true, "no token yet"),
        metrics: shared.metrics.clone(),
        fingerprint: fingerprint(options),
    };
    let manager = TokenManager::new(options.lifecycle.clone(), deps);
    let lifecycle = manager.options_sender();
    let (mut heir, mut inherited) = (None, None);
    if let Some(before) = before.filter(|before| session.keeps_token_of(&before.options)) {
        manager.publish_previous(before.handle.source.watch.peek());
        let (sender, receiver) = oneshot::channel();
        (heir, inherited) = (Some(sender), Some(receiver));
    }
    let (end, ends) = oneshot::channel();
    let handle = RunningSession { source: SessionHandle { watch, refresh_signal }, lifecycle, consumed, heir, end };
    Ok((handle, Box::pin(run(manager, inherited, ends, claim.clone()))))
}

/// Manages the token until it is stopped, then revokes it if configured; outputs have released it by then. Starts after
/// the session that it replaces, which has the same state file, has released it.
async fn run(
    mut manager: TokenManager,
    inherited: Option<oneshot::Receiver<SessionShutdown>>,
    mut ends: oneshot::Receiver<SessionEnd>,
    claim: Claim,
) {
    if let Some(inherited) = inherited
        && let Ok(predecessor) = inherited.await
    {
        manager.adopt(predecessor);
    }
    let shutdown = manager.run(claim.stop).await;
    let SessionEnd { heir, listeners } = ends.try_recv().unwrap_or_default();
    let unclaimed_token = match heir {
        None => Some(shutdown),
        // The heir has ended already where this fails.
        Some(heir) => heir.send(shutdown).err(),
    };
    claim.released.cancel();
    if let Some(shutdown) = unclaimed_token {
        reconciler::wait_for_all(listeners).await;
        shutdown.revoke().await;
    }
}
