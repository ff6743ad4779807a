//! Answers the connections of systemd, and reports whether the credentials are available.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::demand::Demand;
use keyward_http::guard::LogThrottle;
use keyward_http::server::{Listener, ListenerMetrics, Peer};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::audit::Auditor;
use keyward_telemetry::health::{Health, HealthHandle};
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::time_format::seconds;
use rustix::net::{SocketAddrUnix, getpeername};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::audit::ConnectionRecord;
use super::grants::{CredentialRefusal, GrantRule, PeerIds, decide};
use super::metrics::{CredentialOutcomeLabels, SystemdCredentialMetrics};
use super::source::{CredentialSource, ValueWatch};
use super::{CredentialServerOptions, PeerName};
use crate::secrets::Subscription;

/// Collaborators of a [`CredentialServer`].
#[derive(Debug, Clone)]
pub struct CredentialServerDeps {
    /// Source of the current time.
    pub clock: Clock,
    /// Metrics that this work updates.
    pub metrics: Metrics,
    /// Registry of the credentials' health.
    pub health: Health,
    /// Records grants and refusals.
    pub auditor: Auditor,
}

/// Serves the credentials of one listener.
#[derive(Debug)]
pub struct CredentialServer {
    options: CredentialServerOptions,
    credentials: Vec<Credential>,
    deps: CredentialServerDeps,
}

/// A credential and the units that may load it.
#[derive(Debug)]
struct Credential {
    rule: GrantRule,
    source: CredentialSource,
    demand: Demand,
    /// `None` for a template, which has a component of its own.
    health: Option<HealthHandle>,
}

impl CredentialServer {
    /// Creates a server without credentials.
    pub const fn new(options: CredentialServerOptions, deps: CredentialServerDeps) -> Self {
        Self { options, credentials: Vec::new(), deps }
    }

    /// Adds the credential of this name in the configuration. Units that wait for it show in `demand`.
    pub fn add(&mut self, name: &str, rule: GrantRule, source: CredentialSource, demand: Demand) {
        let health = match source {
            CredentialSource::Rendered(_) => None,
            CredentialSource::Token(_) | CredentialSource::Secret { .. } => {
                let component = format!("credential/{}/{name}", self.options.name);
                let health = self.deps.health.register(component, self.options.required, "not read yet");
                health.set_target(describe(&rule));
                Some(health)
            }
        };
        self.credentials.push(Credential { rule, source, demand, health });
    }

    /// Serves until `stop`, then keeps serving units that wait, for `drain` at most.
    pub async fn serve(self, socket: Listener, drain: Duration, stop: CancellationToken) {
        let Self { options, credentials, deps } = self;
        let listener_metrics = ListenerMetrics { metrics: deps.metrics.clone(), listener: options.name.clone() };
        let mut reports = JoinSet::new();
        let mut open = Vec::new();
        for Credential { rule, source, demand, health } in credentials {
            let (value, subscription) = source.open();
            if let Some(health) = health {
                reports.spawn(report_health(value.clone(), deps.clock.clone(), health));
            }
            open.push(OpenCredential { rule, value, demand, _subscription: subscription });
        }
        let server = Arc::new(OpenServer {
            options,
            credentials: open,
            deps,
            log_throttle: LogThrottle::default(),
            waiting: Semaphore::new(MAX_WAITING_UNITS),
        });
        let handler = move |stream, peer| Arc::clone(&server).response(stream, peer);
        socket.serve_streams(handler, listener_metrics, drain, stop).await;
    }
}

/// Describes a credential for operators: its id, and the units.
pub(crate) fn describe(rule: &GrantRule) -> String {
    let units: Vec<_> = rule.units.iter().map(ToString::to_string).collect();
    format!("{} of {}", rule.id, units.join(", "))
}

/// Reports whether a credential is available, until its source ends.
async fn report_health(mut value: ValueWatch, clock: Clock, health: HealthHandle) {
    loop {
        match value.current(&clock) {
            Ok(_) => {
                health.set_ready();
                health.record_update();
            }
            Err(reason) => health.set_not_ready(reason),
        }
        if value.changed().await.is_err() {
            // Keeps the last state until the server ends.
            std::future::pending::<()>().await;
        }
    }
}

struct OpenCredential {
    rule: GrantRule,
    value: ValueWatch,
    demand: Demand,
    /// The secret is read and renewed while this is held.
    _subscription: Option<Subscription>,
}

struct OpenServer {
    options: CredentialServerOptions,
    credentials: Vec<OpenCredential>,
    deps: CredentialServerDeps,
    log_throttle: LogThrottle,
    /// Bounds the connections that wait for a value.
    waiting: Semaphore,
}

impl OpenServer {
    /// Writes the credential that the peer may have to the stream, and nothing else.
    async fn response(self: Arc<Self>, mut stream: UnixStream, peer: Peer) {
        let Peer::Unix { uid, gid, pid, .. } = peer else { return };
        let ids = PeerIds { uid, gid };
        let address = getpeername(&stream).ok().flatten().and_then(|name| SocketAddrUnix::try_from(name).ok());
        let name = address.as_ref().and_then(SocketAddrUnix::abstract_name).unwrap_or_default();
        let rules = self.credentials.iter().map(|credential| &credential.rule);
        let (credential, name) = match decide(ids, name, rules) {
            Ok((index, name)) => (self.credentials.get(index), name),
            Err((refusal, name)) => {
                self.record(&peer, name.as_ref(), Some(refusal.outcome())).record_refusal();
                return self.refuse(refusal, name.as_ref(), ids, pid);
            }
        };
        let Some(credential) = credential else { return };
        let started = self.deps.clock.now();
        // The listener drops connections that still wait at its end.
        let cancelled = scopeguard::guard((), |()| {
            self.record(&peer, Some(&name), Some("stopped")).record_refusal();
            self.report_unavailable("stopped", "the listener ends, by a stop or a reload", &name);
        });
        let value = self.value(credential).await;
        scopeguard::ScopeGuard::into_inner(cancelled);
        let value = match value {
            Ok(value) => value,
            Err((outcome, reason)) => {
                self.record(&peer, Some(&name), Some(outcome)).record_refusal();
                return self.report_unavailable(outcome, &reason, &name);
            }
        };
        if let Err(error) = self.record(&peer, Some(&name), None).admit().await {
            return self.report_unavailable("unaudited", &error.to_string(), &name);
        }
        let outcome = match tokio::time::timeout(WRITE_TIMEOUT, write(&mut stream, &value)).await {
            Ok(Ok(())) => "granted",
            Ok(Err(_)) | Err(_) => "failed",
        };
        self.count(outcome);
        tracing::info!(
            event = "systemd_credential.granted",
            listener = self.options.name,
            unit = name.unit,
            credential = name.credential,
            outcome,
            pid,
            waited_seconds = seconds(self.deps.clock.now().since(started)),
            "a unit of systemd loads a credential"
        );
    }

    async fn value(&self, credential: &OpenCredential) -> Result<SecretString, (&'static str, String)> {
        let clock = &self.deps.clock;
        let mut watch = credential.value.clone();
        if let Ok(value) = watch.current(clock) {
            return Ok(value);
        }
        let Ok(_slot) = self.waiting.try_acquire() else {
            return Err(("busy", format!("too many units are waiting ({MAX_WAITING_UNITS})")));
        };
        let _waiting = credential.demand.wait();
        match tokio::time::timeout(self.options.wait, watch.wait(clock)).await {
            Ok(value) => value.map_err(|reason| ("not_ready", reason)),
            Err(_) => watch.current(clock).map_err(|reason| ("not_ready", reason)),
        }
    }

    /// Prepares the record of a connection; `refused` is the reason of a refusal.
    fn record(&self, peer: &Peer, name: Option<&PeerName<'_>>, refused: Option<&'static str>) -> ConnectionRecord<'_> {
        ConnectionRecord::new(&self.deps.auditor, &self.options.name, peer, name, refused)
    }

    fn count(&self, outcome: &'static str) {
        let labels = CredentialOutcomeLabels { listener: self.options.name.clone(), outcome };
        self.deps.metrics.get::<SystemdCredentialMetrics>().requests.get_or_create(&labels).inc();
    }

    fn refuse(&self, refusal: CredentialRefusal, name: Option<&PeerName<'_>>, ids: PeerIds, pid: u32) {
        let reason = refusal.outcome();
        self.count(reason);
        let Some(suppressed) = self.log_throttle.allow(reason) else { return };
        let error = match refusal {
            CredentialRefusal::Peer => "the peer is not root: only systemd may connect".to_owned(),
            CredentialRefusal::Name(error) => format!("the peer is not systemd loading a credential: {error}"),
            CredentialRefusal::NotGranted => "no credential of the listener names this unit and id".to_owned(),
        };
        tracing::warn!(
            event = "systemd_credential.refused",
            listener = self.options.name,
            reason,
            error,
            unit = name.map(|name| name.unit),
            credential = name.map(|name| name.credential),
            uid = ids.uid,
            gid = ids.gid,
            pid,
            suppressed,
            "refused a connection for a credential: nothing was written"
        );
    }

    fn report_unavailable(&self, outcome: &'static str, error: &str, name: &PeerName<'_>) {
        self.count(outcome);
        let Some(suppressed) = self.log_throttle.allow(outcome) else { return };
        tracing::warn!(
            event = "systemd_credential.unavailable",
            listener = self.options.name,
            unit = name.unit,
            credential = name.credential,
            error,
            suppressed,
            "nothing was written: the unit starts with an empty credential"
        );
    }
}

async fn write(stream: &mut UnixStream, value: &SecretString) -> std::io::Result<()> {
    stream.write_all(value.expose_secret().as_bytes()).await?;
    // systemd reads up to the end of the stream.
    stream.shutdown().await
}

/// Most units that wait at a time.
const MAX_WAITING_UNITS: usize = 512;

/// Time for systemd to read a value.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
