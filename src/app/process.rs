//! The running process: starts the parts, applies reloads, forwards signals, and stops in order.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::process::KILL_TIMEOUT;
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_config::{Config, OpenFiles};
use keyward_http::server::ActivatedSockets;
#[cfg(any(feature = "acl", feature = "gateway"))]
use keyward_http::server::Endpoint;
use keyward_machine::command::{Launcher, SpawnerConnection};
use keyward_machine::tasks::TaskGroup;
use keyward_telemetry::health::Health;
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "acl")]
use super::acl::BuiltAclServer;
use super::audit::RunningAudit;
use super::certificate_files::{self, CertificateFiles};
#[cfg(feature = "gateway")]
use super::gateway;
use super::logging::{self, LogLevel};
use super::metrics::{self, OutcomeLabels, ReloadMetrics};
use super::reload::{ReloadPlan, RunningAgent};
use super::sandbox::{self, SandboxReport};
use super::session::Shared;
use super::socket_placement::{discard_replaced, place_sockets};
use super::{certificate_watch, child_process, error_codes, fd_limits, protected_memory, service_notifier, spawner};

/// Everything that the configuration asks for, running or about to run.
pub struct App {
    shared: Shared,
    config: Config,
    log: Option<LogLevel>,
    inherited: ActivatedSockets,
    agent: RunningAgent,
    /// The first plan; committed when [`App::run`] begins.
    plan: ReloadPlan,
    #[cfg(feature = "acl")]
    acl: Option<BuiltAclServer>,
}

impl fmt::Debug for App {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}

/// State of the process that was set before its event loop.
#[derive(Debug, Default)]
pub struct ProcessSetup {
    /// Changes the log level on reload, unless the command line sets it.
    pub log: Option<LogLevel>,
    /// Sockets that the service manager passed.
    pub inherited: ActivatedSockets,
    /// The spawner; without one this process starts programs itself.
    pub spawner: Option<SpawnerConnection>,
    /// The sandbox of the process.
    pub sandbox: SandboxReport,
}

/// Requests from outside to a running [`App`].
#[derive(Debug)]
pub struct Signals {
    /// Cancelled to stop it.
    pub stop: CancellationToken,
    /// A new configuration, or the errors of one that was rejected.
    pub reloads: mpsc::Receiver<Result<Config, ReloadRejected>>,
    /// Signals for the child process.
    pub for_child: mpsc::Receiver<Signal>,
}

/// Reason why a new configuration is not applied.
#[derive(Debug)]
pub struct ReloadRejected {
    /// Its errors, one line each.
    pub errors: Vec<String>,
    /// True if the running process can never apply it, and a restarted one could.
    pub needs_restart: bool,
}

impl From<Vec<String>> for ReloadRejected {
    fn from(errors: Vec<String>) -> Self {
        Self { errors, needs_restart: false }
    }
}

impl From<anyhow::Error> for ReloadRejected {
    fn from(error: anyhow::Error) -> Self {
        Self { errors: vec![error_codes::format(&error)], needs_restart: error_codes::needs_restart(&error) }
    }
}

impl Signals {
    /// Requests for a configuration without a child process: no signal is forwarded.
    pub fn new(stop: CancellationToken, reloads: mpsc::Receiver<Result<Config, ReloadRejected>>) -> Self {
        Self { stop, reloads, for_child: mpsc::channel(1).1 }
    }
}

impl App {
    /// Builds and binds all that `config` asks for. Nothing is sent and nothing is served yet.
    #[cfg_attr(not(feature = "acl"), expect(clippy::unused_async, reason = "what waits here is the service's store"))]
    pub async fn build(config: Config, setup: ProcessSetup) -> anyhow::Result<Self> {
        let ProcessSetup { log, inherited, spawner, sandbox } = setup;
        let shared = match spawner {
            Some(SpawnerConnection { stream, executables }) => {
                let launcher = Launcher::connect(stream).context("cannot use the helper process keyward-spawner")?;
                Shared { launcher, executables, ..Shared::default() }
            }
            None => Shared::default(),
        };
        metrics::register_all(&shared.metrics, shared.health.started_at().wall);
        sandbox::publish(&sandbox, &shared.status_registry, &shared.metrics);
        RunningAudit::check(&config.audit)?;
        let files = OpenFiles::new(&config);
        fd_limits::reserve(&files)?;
        let agent = RunningAgent::default();
        let plan = agent.plan(&config, &inherited, &shared)?;
        place_sockets(&plan)?;
        discard_replaced(&plan);
        #[cfg(feature = "acl")]
        let acl = match &config.acl {
            Some(options) => {
                let connections = options.connections.unwrap_or_else(|| fd_limits::connections_per_socket(&files));
                Some(BuiltAclServer::build(options, connections, &inherited, &shared).await?)
            }
            None => None,
        };
        Ok(Self {
            shared,
            config,
            log,
            inherited,
            agent,
            plan,
            #[cfg(feature = "acl")]
            acl,
        })
    }

    /// Readiness of its components.
    pub const fn health(&self) -> &Health {
        &self.shared.health
    }

    /// Status of its sessions.
    pub const fn session_statuses(&self) -> &SessionStatusRegistry {
        &self.shared.session_statuses
    }

    /// Bound addresses of the ACL server; empty without one.
    #[cfg(feature = "acl")]
    pub fn acl_endpoints(&self) -> Vec<Endpoint> {
        self.acl.as_ref().map(BuiltAclServer::endpoints).unwrap_or_default()
    }

    /// Bound addresses of the gateway; empty without one.
    #[cfg(feature = "gateway")]
    pub fn gateway_endpoints(&self) -> Vec<Endpoint> {
        gateway::endpoints(&self.plan.gateway)
    }

    /// Runs until `signals.stop`, a failure, or the end of the child process, which stops first, then listeners, then sinks,
    /// then sessions. Returns the exit code of the child process, or 0.
    pub async fn run(self, mut signals: Signals) -> anyhow::Result<u8> {
        let mut services = TaskGroup::new(CancellationToken::new());
        let grace = self.config.agent.stop_grace;
        let mut audit = RunningAudit::default();
        audit.apply(&self.config.audit, &self.shared)?;
        #[cfg(feature = "acl")]
        if let Some(acl) = self.acl {
            services.start("acl", acl.run(grace, services.stop_token()));
        }
        let notifier = service_notifier::ServiceNotifier::default();
        let certificates = start_services(&mut services, &self.shared, &self.config, notifier.clone());
        let mut agent = self.agent;
        agent.commit(self.plan, &self.config, &self.shared);
        let mut reloading = Reloader {
            shared: self.shared,
            config: self.config,
            log: self.log,
            inherited: self.inherited,
            notifier: notifier.clone(),
            certificates,
            audit,
        };
        let mut code = None;
        let failure = loop {
            tokio::select! {
                () = signals.stop.cancelled() => break None,
                Some(new) = signals.reloads.recv() => reloading.reload(&mut agent, new),
                failure = services.wait_for_failure() => break Some(failure),
                ended = agent.wait_for_end() => match ended {
                    Ok(ended) => {
                        code = Some(ended);
                        break None;
                    }
                    Err(failure) => break Some(failure),
                },
                Some(signal) = signals.for_child.recv() => child_process::forward_signal(&agent.children, signal),
            }
        };
        tracing::info!(event = "agent.stopping", "stopping");
        notifier.stopping(stop_limit(&reloading.config));
        let code = code.or(child_process::stop(&mut agent.children).await);
        let mut result = failure.map_or(Ok(()), |failure| Err(failure.into()));
        result = result.and(agent.stop(reloading.config.agent.stop_grace).await.map_err(Into::into));
        services.stop_token().cancel();
        result = result.and(services.run(grace).await.map_err(Into::into));
        reloading.audit.stop().await;
        tracing::info!(event = "agent.stopped", "stopped");
        result.map(|()| code.unwrap_or_default())
    }
}

/// Returns the longest time that a stop can take: the child process, requests in flight of the agent and of the ACL server,
/// and the rest, one after the other.
fn stop_limit(config: &Config) -> Duration {
    let child = config.process.as_ref().map_or(Duration::ZERO, |process| process.stop_timeout + KILL_TIMEOUT);
    child + config.agent.stop_grace * 2 + REMAINING_STOP_TIME
}

/// Time for sinks, templates, the revocation of tokens, state files and audits, each of which has a limit of its own.
const REMAINING_STOP_TIME: Duration = Duration::from_secs(30);

/// Starts the tasks that all parts share. Returns the channel for the certificate files of a new configuration.
fn start_services(
    services: &mut TaskGroup,
    shared: &Shared,
    config: &Config,
    notifier: service_notifier::ServiceNotifier,
) -> watch::Sender<CertificateFiles> {
    let Shared { clock, metrics, health, outputs, .. } = shared.clone();
    services.start("memory", protected_memory::report(health.clone(), metrics.clone(), services.stop_token()));
    let notify = service_notifier::notify(notifier, health, config.agent.ready, clock.clone(), services.stop_token());
    services.start("service manager", async move {
        notify.await;
        Ok(())
    });
    if shared.launcher.has_spawner() {
        let launcher = shared.launcher.clone();
        let executables = shared.executables.clone();
        let watching =
            spawner::watch(launcher, executables, shared.health.clone(), metrics.clone(), services.stop_token());
        services.start("spawner", watching);
    }
    let stop = services.stop_token();
    services.start("output watch", async move {
        outputs.run(stop).await;
        Ok(())
    });
    let (certificates, listed) = watch::channel(certificate_files::files(config));
    let watching = certificate_watch::watch(listed, clock, metrics, services.stop_token());
    services.start("certificates", async move {
        watching.await;
        Ok(())
    });
    certificates
}

/// State that a reload compares with the new configuration, and replaces.
struct Reloader {
    shared: Shared,
    config: Config,
    log: Option<LogLevel>,
    inherited: ActivatedSockets,
    notifier: service_notifier::ServiceNotifier,
    certificates: watch::Sender<CertificateFiles>,
    audit: RunningAudit,
}

impl Reloader {
    /// Applies a new configuration as a whole, or keeps the old one and reports the errors.
    fn reload(&mut self, agent: &mut RunningAgent, new: Result<Config, ReloadRejected>) {
        self.notifier.reloading();
        let outcome = match new.and_then(|new| self.apply(agent, new)) {
            Ok(()) => {
                self.set_reload_error(None, false);
                tracing::info!(event = "config.reload.ok", "reloaded the configuration");
                "ok"
            }
            Err(ReloadRejected { errors, needs_restart }) => {
                for error in &errors {
                    tracing::error!(
                        event = "config.reload.failed",
                        error,
                        "rejected the new configuration; the old one stays in use"
                    );
                }
                self.set_reload_error(Some(errors.join("; ")), needs_restart);
                "failed"
            }
        };
        self.shared.metrics.get::<ReloadMetrics>().reloads.get_or_create(&OutcomeLabels { outcome }).inc();
        self.notifier.notify_reloaded();
    }

    fn set_reload_error(&self, error: Option<String>, needs_restart: bool) {
        self.shared.status_registry.update(|status| {
            (status.reload_error, status.reload_needs_restart) = (error, needs_restart);
            status.reloads += 1;
        });
    }

    fn apply(&mut self, agent: &mut RunningAgent, new: Config) -> Result<(), ReloadRejected> {
        let fixed = settings_fixed_at_start(&self.config, &new);
        if !fixed.is_empty() {
            let errors = vec![format!("changes of {} need a restart", fixed.join(", "))];
            return Err(ReloadRejected { errors, needs_restart: true });
        }
        RunningAudit::check(&new.audit)?;
        fd_limits::reserve(&OpenFiles::new(&new))?;
        let plan = agent.plan(&new, &self.inherited, &self.shared)?;
        place_sockets(&plan).map_err(anyhow::Error::from)?;
        self.audit.apply(&new.audit, &self.shared)?;
        discard_replaced(&plan);
        if let Some(log) = &self.log
            && new.log != self.config.log
        {
            log.set(logging::targets(&new.log));
        }
        agent.commit(plan, &new, &self.shared);
        self.certificates.send_replace(certificate_files::files(&new));
        self.config = new;
        Ok(())
    }
}

/// Returns the settings that differ, and that a running process cannot change.
fn settings_fixed_at_start(old: &Config, new: &Config) -> Vec<&'static str> {
    let settings = [
        #[cfg(feature = "acl")]
        ("[acl]", old.acl != new.acl),
        ("log.format", old.log.format != new.log.format),
        ("agent.sandbox", old.agent.sandbox != new.agent.sandbox),
        ("agent.ready", old.agent.ready != new.agent.ready),
    ];
    settings.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_task_of_caller_tokens_ends_the_process() {
        let mut agent = RunningAgent::default();
        agent.caller_tokens.tasks.start("tokens of a caller", async { panic!("on purpose") });
        let end = tokio::time::timeout(Duration::from_secs(1), agent.wait_for_end()).await.unwrap();
        assert_eq!(end.unwrap_err().to_string(), "tokens of a caller failed");
    }
}
