//! Task that keeps one certificate in its files. Each certificate has its own, so that a failure delays no other.

mod delivery;
mod report;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::Backoff;
use keyward_credentials::credential_watch::CredentialPublisher;
use keyward_machine::atomic_file::Outcome;
use keyward_machine::clock::{Clock, ClockChanges, ClockReading};
use keyward_machine::command::{Launcher, ProvidedEnv};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::CertificateOptions;
use super::facts::Unusable;
use super::issued::IssuedCertificate;
use super::metrics::IssuedCertificateMetrics;
use super::output::{NotReused, WriteError};
use crate::output_command::{CommandRunner, EarlierCommand, restore_command};
use crate::output_watch::{OutputWatch, RestoreBackoff, WatchedOutputs};
use crate::rotation::RotationHandle;
use crate::secrets::{RetrySchedule, SecretRegistry};
use crate::token::{Token, TokenWatch};

/// Collaborators of a [`CertificateTask`].
#[derive(Debug)]
pub struct CertificateDeps {
    /// Publishes that the files are written.
    pub publisher: CredentialPublisher<ProvidedEnv>,
    /// Registry of the session's secrets: its server, its token and its budgets.
    pub registry: SecretRegistry,
    /// Receives requests to replace the certificate at once.
    pub rotation: RotationHandle,
    /// Source of the current time.
    pub clock: Clock,
    /// Reports whether the files hold a valid certificate.
    pub health: HealthHandle,
    /// Metrics that this work updates.
    pub metrics: Metrics,
    /// Watches the files for changes by others.
    pub outputs: OutputWatch,
    /// Starts the command.
    pub launcher: Launcher,
}

/// Keeps one certificate.
#[derive(Debug)]
pub struct CertificateTask {
    options: CertificateOptions,
    deps: CertificateDeps,
    /// Digest of the settings with which certificates are requested.
    digest: String,
    tokens: TokenWatch,
    token: Option<Arc<Token>>,
    retries: RetrySchedule,
    current: Option<Current>,
    clock_changes: ClockChanges,
    write_backoff: Backoff,
    /// Time of the next attempt after a failed write or command.
    deliver_at: Option<ClockReading>,
    /// The files have changed, and the command has not succeeded since, in this task or an earlier one.
    command_pending: bool,
    is_command_abandoned: bool,
    commands: CommandRunner,
    /// Watch the files for changes by others.
    watched: WatchedOutputs,
    /// Time of the next check of the files, after an event on them.
    check_at: Option<ClockReading>,
    restore_backoff: RestoreBackoff,
    /// The files are published as written.
    is_published: bool,
    request_outage: Outage,
    delivery_outage: Outage,
    /// The last failure of a request, until one succeeds.
    request_error: Option<RequestError>,
    /// The write of the files that is in progress.
    write: JoinSet<Result<Outcome, WriteError>>,
}

/// The certificate in use.
#[derive(Debug)]
struct Current {
    certificate: Arc<IssuedCertificate>,
    /// The files hold it.
    is_written: bool,
    is_end_reported: bool,
    /// It was requested by this process, at this time.
    issued: Option<ClockReading>,
}

/// Text and code of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestError {
    code: Option<ErrorCode>,
    text: String,
}

enum Event {
    TokenChanged,
    SessionEnded,
    CertificateEnded,
    RequestDue,
    RotationRequested,
    DeliveryDue,
    ClockChanged,
    FilesChanged,
    CheckDue,
}

impl CertificateTask {
    /// Creates a task. Reads and requests nothing yet.
    pub fn new(options: CertificateOptions, deps: CertificateDeps) -> Self {
        let session = deps.registry.deps();
        let digest = options.request.digest(session.upstream.address(), session.namespace.as_deref());
        let tokens = session.tokens.clone();
        let now = deps.clock.now();
        deps.health.set_target(options.output.path.display().to_string());
        Self {
            digest,
            tokens,
            token: None,
            retries: RetrySchedule::new(now),
            current: None,
            clock_changes: deps.clock.changes(),
            write_backoff: Backoff::new(RETRY_BASE, RETRY_MAX),
            deliver_at: None,
            command_pending: false,
            is_command_abandoned: false,
            commands: CommandRunner::new(deps.launcher.clone(), deps.clock.clone()),
            watched: WatchedOutputs::new(deps.outputs.clone()),
            check_at: None,
            restore_backoff: RestoreBackoff::default(),
            is_published: false,
            request_outage: Outage::default(),
            delivery_outage: Outage::default(),
            request_error: None,
            write: JoinSet::new(),
            options,
            deps,
        }
    }

    /// Keeps the certificate until `stop` is cancelled. The files stay. A write in progress ends first.
    pub async fn run(mut self, stop: CancellationToken) {
        let has_command = self.options.command.is_some();
        self.deps.metrics.get::<IssuedCertificateMetrics>().create_counters(&self.options.name, has_command);
        self.restore().await;
        let _: Option<()> = stop.run_until_cancelled(self.work()).await;
        // Nothing cancels a write in its thread: it could replace the files of the task that follows.
        while self.write.join_next().await.is_some() {}
        self.commands.finish().await;
        self.deps.metrics.get::<IssuedCertificateMetrics>().remove_gauges(&self.options.name);
    }

    async fn work(&mut self) {
        self.update_token();
        self.deliver(false).await;
        self.report();
        loop {
            match self.wait().await {
                Event::TokenChanged => self.update_token(),
                // Nothing can be requested any more, and what is there stays.
                Event::SessionEnded => std::future::pending().await,
                Event::CertificateEnded => self.record_end(),
                Event::RequestDue => self.request().await,
                Event::RotationRequested => {
                    self.record_rotation();
                    self.rotate().await;
                }
                Event::FilesChanged => self.check_at = Some(self.restore_backoff.check_at(&self.deps.clock)),
                Event::CheckDue => self.check_files().await,
                Event::ClockChanged => self.follow_clock(),
                Event::DeliveryDue => {}
            }
            self.deliver(false).await;
            self.report();
        }
    }

    async fn wait(&mut self) -> Event {
        let clock = self.deps.clock.clone();
        let (ends, request_at, deliver_at) = (self.ends(), self.request_at(), self.deliver_at);
        tokio::select! {
            // The end comes first, so that it is reported in time while other events follow each other.
            biased;
            () = clock.sleep_until_some(ends) => Event::CertificateEnded,
            changed = self.tokens.changed() => if changed.is_ok() { Event::TokenChanged } else { Event::SessionEnded },
            () = self.deps.rotation.requested() => Event::RotationRequested,
            () = clock.sleep_until_some(request_at) => Event::RequestDue,
            () = clock.sleep_until_some(deliver_at) => Event::DeliveryDue,
            () = self.clock_changes.next() => Event::ClockChanged,
            () = self.watched.changed(), if self.check_at.is_none() => Event::FilesChanged,
            () = clock.sleep_until_some(self.check_at) => Event::CheckDue,
        }
    }

    /// Reads the files of an earlier process, and removes what interrupted writes left behind.
    async fn restore(&mut self) {
        let (output, digest) = (self.options.output.clone(), self.digest.clone());
        let request = self.options.request.clone();
        let has_command = self.options.command.is_some();
        let now = self.deps.clock.now().wall;
        let restore = move || {
            let swept = output.sweep();
            let read = output.read(&digest, now).and_then(|certificate| {
                let has_key = request.has_key(&certificate);
                if has_key { Ok(certificate) } else { Err(NotReused::Unusable(Unusable::OtherKey)) }
            });
            (swept, restore_command(&output.path, has_command), read)
        };
        let Ok((swept, command, read)) = tokio::task::spawn_blocking(restore).await else { return };
        self.command_pending = command == EarlierCommand::Pending;
        self.is_command_abandoned = command == EarlierCommand::Abandoned;
        self.record_restoration(swept, &read);
        if let Ok(certificate) = read {
            // Written again below where mode or owner are others now.
            self.set_current(certificate, None);
        }
    }

    fn set_current(&mut self, certificate: IssuedCertificate, issued: Option<ClockReading>) {
        let certificate = Arc::new(certificate);
        self.current = Some(Current { certificate, is_written: false, is_end_reported: false, issued });
    }

    /// Takes an end back that only a wrong wall clock has shown.
    fn follow_clock(&mut self) {
        let now = self.deps.clock.now().wall;
        if let Some(current) = &mut self.current {
            current.is_end_reported &= current.certificate.has_ended(now);
        }
    }

    /// Time at which the certificate ends, unless that was reported.
    fn ends(&self) -> Option<ClockReading> {
        let current = self.current.as_ref().filter(|current| !current.is_end_reported)?;
        let now = self.deps.clock.now();
        Some(now + current.certificate.life().ends.duration_since(now.wall).unwrap_or_default())
    }

    /// Time of the next request; `None` while nothing can be requested, or what was requested is not written yet.
    fn request_at(&self) -> Option<ClockReading> {
        self.token.as_ref()?;
        let now = self.deps.clock.now();
        let not_before = self.retries.not_before();
        match &self.current {
            Some(current) if !current.certificate.has_ended(now.wall) => {
                let earliest = now.wall_time_of(not_before);
                let (life, unit) = (current.certificate.life(), current.certificate.unit());
                let at = self.options.renewal.next_request(life, earliest, now.wall, unit);
                let wait = at.duration_since(now.wall).unwrap_or_default();
                current.is_written.then(|| (now + wait).later(not_before))
            }
            _ => Some(not_before.later(now)),
        }
    }

    /// Reads the session's token. One that the server refused is not used again before its time; another one is.
    fn update_token(&mut self) {
        self.token = self.tokens.current().availability.available();
        let refused = self.retries.refused_token();
        if let (Some(token), Some(refused)) = (&self.token, refused)
            && token.generation != refused
        {
            self.retries = RetrySchedule::new(self.deps.clock.now());
        }
    }
}

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
