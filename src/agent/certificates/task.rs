//! Task that keeps one certificate in its files. Each certificate has its own, so that a failure delays no other.

mod issuer;
mod delivery;
mod report;
mod requests;

pub use self::issuer::{CertificateIssuer, EngineOptions};

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
use crate::identity::{WorkloadApiError, X509Svid};
use crate::output_command::{EarlierCommand, SharedCommandRunner, SharedCommands, restore_command};
use crate::output_watch::{OutputWatch, RestoreBackoff, WatchedOutputs};
use issuer::Issuer;

/// Collaborators of a [`CertificateTask`].
#[derive(Debug)]
pub struct CertificateDeps {
    /// Publishes that the files are written.
    pub publisher: CredentialPublisher<ProvidedEnv>,
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
    /// Runs a command that several outputs share once for all of them.
    pub commands: SharedCommands,
}

/// Keeps one certificate.
#[derive(Debug)]
pub struct CertificateTask {
    options: CertificateOptions,
    deps: CertificateDeps,
    /// Digest of the settings with which certificates are requested.
    digest: String,
    issuer: Issuer,
    current: Option<Current>,
    clock_changes: ClockChanges,
    write_backoff: Backoff,
    /// Time of the next attempt after a failed write or command.
    deliver_at: Option<ClockReading>,
    /// The files have changed, and the command has not succeeded since, in this task or an earlier one.
    command_pending: bool,
    is_command_abandoned: bool,
    command: Option<SharedCommandRunner>,
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

#[derive(Debug)]
enum Event {
    TokenChanged,
    SessionEnded,
    RotationRequested,
    SvidReceived(Box<Result<X509Svid, WorkloadApiError>>),
    CertificateEnded,
    RequestDue,
    DeliveryDue,
    ClockChanged,
    FilesChanged,
    CheckDue,
}

impl CertificateTask {
    /// Creates a task. Reads and requests nothing yet.
    pub fn new(options: CertificateOptions, issuer: CertificateIssuer, deps: CertificateDeps) -> Self {
        let issuer = Issuer::new(issuer, &deps.clock);
        let command = options.command.clone().map(|command| {
            let CertificateDeps { commands, launcher, clock, .. } = &deps;
            let (variables, debounce) = (options.variables.clone(), options.command_debounce);
            SharedCommandRunner::new(commands, command, variables, debounce, launcher.clone(), clock.clone())
        });
        deps.health.set_target(options.output.path.display().to_string());
        Self {
            digest: issuer.digest(),
            issuer,
            current: None,
            clock_changes: deps.clock.changes(),
            write_backoff: Backoff::new(RETRY_BASE, RETRY_MAX),
            deliver_at: None,
            command_pending: false,
            is_command_abandoned: false,
            command,
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
        if let Some(command) = &mut self.command {
            command.finish().await;
        }
        self.deps.metrics.get::<IssuedCertificateMetrics>().remove_gauges(&self.options.name);
    }

    async fn work(&mut self) {
        self.issuer.update_token(self.deps.clock.now());
        self.deliver(false).await;
        self.report();
        loop {
            match self.wait().await {
                Event::TokenChanged => self.issuer.update_token(self.deps.clock.now()),
                // Nothing can be requested any more, and what is there stays.
                Event::SessionEnded => std::future::pending().await,
                Event::CertificateEnded => self.record_end(),
                Event::RequestDue => self.request().await,
                Event::RotationRequested => {
                    self.record_rotation();
                    self.rotate().await;
                }
                Event::SvidReceived(received) => self.take_svid(*received),
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
            event = self.issuer.event() => event,
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
        let request = self.issuer.request().cloned();
        let has_command = self.options.command.is_some();
        let now = self.deps.clock.now().wall;
        let restore = move || {
            let swept = output.sweep();
            let read = output.read(&digest, now).and_then(|certificate| {
                let has_key = request.is_none_or(|request| request.has_key(&certificate));
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
        let now = self.deps.clock.now();
        let valid = self.current.as_ref().filter(|current| !current.certificate.has_ended(now.wall));
        self.issuer.request_at(valid, now)
    }
}

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
