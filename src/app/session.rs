//! One chain identity -> login -> token manager -> watch, built from its options.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use keyward_agent::callers::CallerRegistry;
use keyward_agent::identity::{ConsumedSecrets, IdentityMethod};
use keyward_agent::login::Login;
use keyward_agent::output_watch::OutputWatch;
use keyward_agent::server_client::ServerClient;
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_agent::token::SessionHandle;
use keyward_agent::token_lifecycle::{self, SessionShutdown, TokenManager, TokenManagerDeps};
use keyward_config as config;
use keyward_credentials::credential_watch::{RefreshSignal, credential_channel};
use keyward_machine::clock::Clock;
use keyward_machine::command::{ExecutableOpener, Launcher};
use keyward_telemetry::audit::Auditor;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status::StatusRegistry;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::fingerprint::fingerprint;
use super::stopping;

/// Shared handles that every part gets.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
    pub(super) status_registry: StatusRegistry,
    pub(super) session_statuses: SessionStatusRegistry,
    pub(super) outputs: OutputWatch,
    pub(super) callers: CallerRegistry,
    pub(super) auditor: Auditor,
    pub(super) launcher: Launcher,
    pub(super) executables: ExecutableOpener,
    /// Services that pages show.
    #[cfg(feature = "ui")]
    pub(super) ui_sources: keyward_ui::Sources,
}

/// The sessions of a configuration, as outputs are joined to them.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionRefs<'a> {
    pub(super) options: &'a [config::Session],
    pub(super) sources: &'a BTreeMap<String, SessionHandle>,
}

/// Returns the login inputs that persisted secrets are bound to, so that another identity cannot read them. The store
/// binds the server's address.
pub(super) fn bound_to(session: &config::Session) -> Vec<String> {
    let login = &session.login;
    // A method without roles is identified by its identity source.
    let proof = match &session.identity {
        IdentityMethod::AppRole(options) => Some(&options.role_id_file),
        IdentityMethod::TokenFile(file) => Some(file),
        IdentityMethod::Certificate => {
            session.upstream.client.tls.identity.as_ref().map(|identity| &identity.certificate)
        }
        IdentityMethod::Cloud(_) | IdentityMethod::Jwt(_) => None,
    };
    let proof = proof.map(|path| path.display().to_string()).unwrap_or_default();
    let namespace = login.namespace.clone().unwrap_or_default();
    vec![session.name.clone(), login.mount.clone(), login.role.clone(), namespace, proof]
}

/// Options that a session is built from; a reload compares them. Connections follow the certificate files by themselves.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionInputs {
    pub(super) options: config::Session,
}

/// Fingerprint of a file that changes when the file is replaced or written: inode, mtime in seconds and nanoseconds, bytes.
pub(super) type FileFingerprint = (u64, i64, i64, u64);

/// Returns the fingerprint of a file as it is now; `None` if it does not exist.
pub(super) fn file_fingerprint(path: &Path) -> Option<FileFingerprint> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

impl SessionInputs {
    pub(super) fn new(options: &config::Session) -> Self {
        Self { options: options.clone() }
    }

    /// True if only the lifecycle options may differ, which a running session applies without a restart.
    pub(super) fn differs_in_lifecycle_alone(&self, other: &Self) -> bool {
        let mut as_other = self.clone();
        as_other.options.lifecycle.clone_from(&other.options.lifecycle);
        as_other == *other
    }

    /// Returns true if a token of `before` stays valid for these settings: same server, namespace, role and form. It is
    /// served until the first login.
    fn keeps_token_of(&self, before: &Self) -> bool {
        let new = &self.options;
        let old = &before.options;
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
        let new = &self.options;
        let old = &before.options;
        new.login.role == old.login.role && new.identity.has_files_of(&old.identity)
    }
}

/// Signals to and from a running session.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionControl {
    /// Cancelled to stop it.
    pub(super) stop: CancellationToken,
    /// Cancelled by the session once it no longer serves the token; it may still revoke it.
    pub(super) ended: CancellationToken,
    /// Receiver of its token at its end; `None` unless another session takes the token over.
    pub(super) successor: Arc<Mutex<Option<oneshot::Sender<SessionShutdown>>>>,
    /// Cancelled by the listeners whose requests in flight use the token; it is revoked after them.
    pub(super) draining: Arc<Mutex<Vec<CancellationToken>>>,
}

impl SessionControl {
    /// Hands the token over at the end instead of revoking it. Call it before the session stops.
    pub(super) fn hand_over(&self) -> oneshot::Receiver<SessionShutdown> {
        let (sender, receiver) = oneshot::channel();
        *self.successor.lock() = Some(sender);
        receiver
    }

    /// Has the token revoked only after these listeners have ended. Call it before the session stops.
    pub(super) fn revoke_after(&self, listeners: Vec<CancellationToken>) {
        *self.draining.lock() = listeners;
    }

    fn take_draining(&self) -> Vec<CancellationToken> {
        std::mem::take(&mut *self.draining.lock())
    }

    fn take_successor(&self) -> Option<oneshot::Sender<SessionShutdown>> {
        self.successor.lock().take()
    }
}

/// A session that runs, as a reload compares and replaces it.
#[derive(Debug)]
pub(super) struct RunningSession {
    pub(super) inputs: SessionInputs,
    pub(super) source: SessionHandle,
    pub(super) lifecycle: watch::Sender<token_lifecycle::TokenLifecycleOptions>,
    pub(super) control: SessionControl,
    /// Secrets that its files no longer hold.
    consumed: ConsumedSecrets,
}

/// Handle of the session that is being replaced.
#[derive(Debug)]
pub(super) struct Predecessor {
    /// Cancelled once it has ended and its state file is free.
    pub(super) ended: CancellationToken,
    /// Receives its token, if it hands it over.
    pub(super) token: Option<oneshot::Receiver<SessionShutdown>>,
}

/// A session that is built and has not started: nothing has been sent.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) inputs: SessionInputs,
    pub(super) source: SessionHandle,
    /// Replaces the lifecycle options of the running session.
    pub lifecycle: watch::Sender<token_lifecycle::TokenLifecycleOptions>,
    /// True if it takes over the token of the session that it follows.
    pub(super) inherits: bool,
    manager: TokenManager,
    consumed: ConsumedSecrets,
}

impl Session {
    /// Builds the chain. It takes over from `running`, the session that it replaces, what may be kept.
    pub(super) fn build(
        inputs: SessionInputs,
        running: Option<&RunningSession>,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let keeps_consumed = |running: &&RunningSession| inputs.keeps_consumed_secrets_of(&running.inputs);
        let consumed = running.filter(keeps_consumed).map(|running| running.consumed.clone()).unwrap_or_default();
        let options = &inputs.options;
        let context = || format!("session {}", options.name);
        let upstream = ServerClient::build(&options.upstream).with_context(context)?.with_metrics(&shared.metrics);
        let namespace = options.login.namespace.as_deref();
        let clock = shared.clock.clone();
        let identity = options.identity.build_with(clock, &upstream, namespace, &consumed).with_context(context)?;
        let login = Login::new(upstream, options.login.clone());
        let (publisher, watch) = credential_channel("no login has succeeded yet");
        let refresh_signal = RefreshSignal::new(shared.clock.clone());
        let parts = TokenManagerDeps {
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
        let manager = TokenManager::new(options.lifecycle.clone(), parts);
        let mut session = Self {
            source: SessionHandle { watch, refresh_signal },
            lifecycle: manager.options_sender(),
            inherits: false,
            manager,
            inputs,
            consumed,
        };
        if let Some(running) = running {
            session.follow(&running.inputs, &running.source);
        }
        Ok(session)
    }

    /// Returns the handle of the session that runs under `control`.
    pub(super) fn to_running(&self, control: SessionControl) -> RunningSession {
        RunningSession {
            inputs: self.inputs.clone(),
            source: self.source.clone(),
            lifecycle: self.lifecycle.clone(),
            control,
            consumed: self.consumed.clone(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.inputs.options.name
    }

    /// Manages the token until it is stopped, then revokes it if configured; outputs have released it by then. Starts after
    /// the session that it replaces, which has the same state file, has ended.
    pub(super) async fn run(mut self, control: SessionControl, follows: Option<Predecessor>) -> anyhow::Result<()> {
        let ended = control.ended.clone().drop_guard();
        if let Some(Predecessor { ended, token }) = follows {
            ended.cancelled().await;
            if let Some(token) = token
                && let Ok(predecessor) = token.await
            {
                self.manager.adopt(predecessor);
            }
        }
        let shutdown = self.manager.run(control.stop.clone()).await;
        let unclaimed_token = match control.take_successor() {
            None => Some(shutdown),
            // The successor has ended already where this fails.
            Some(successor) => successor.send(shutdown).err(),
        };
        drop(ended);
        if let Some(shutdown) = unclaimed_token {
            stopping::wait_for_all(control.take_draining()).await;
            shutdown.revoke().await;
        }
        Ok(())
    }

    /// Takes over the token of the replaced session, if it may be kept.
    fn follow(&mut self, before: &SessionInputs, source: &SessionHandle) {
        self.inherits = self.inputs.keeps_token_of(before);
        if self.inherits {
            self.manager.publish_previous(source.watch.peek());
        }
    }
}
