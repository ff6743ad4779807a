//! Reports of a certificate's task: log events, health and metrics.

use std::time::{Duration, SystemTime};

use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::status::CertificateEntry;
use keyward_telemetry::time_format::{format_rfc3339, seconds};

use super::delivery::DeliveryError;
use super::{CertificateTask, Current, RequestError};
use crate::certificates::issued::IssuedCertificate;
use crate::certificates::metrics::{IssuedCertificateLabels, IssuedCertificateMetrics};
use crate::certificates::output::NotReused;
use crate::output_command::ABANDONED;
use crate::output_watch::{OutputChangeLabels, OutputMetrics};

const IN_PLACE: i64 = 0;
const WAITING: i64 = 1;
const FAILING: i64 = 2;
const ENDED: i64 = 3;

impl CertificateTask {
    /// Reports the state: the certificate in use and its times, or the reason why there is none.
    pub(super) fn report(&self) {
        let health = &self.deps.health;
        let now = self.deps.clock.now().wall;
        match &self.current {
            Some(current) if !current.certificate.has_ended(now) => {
                self.set_times(current);
                health.set_note(Some(self.describe(current)));
                health.set_certificate(Some(self.entry(current)));
                // A failed write or command was reported when it failed.
                if current.is_written && self.deliver_at.is_none() {
                    health.set_ready();
                    self.warn();
                    self.set_state(if self.request_error.is_some() { FAILING } else { IN_PLACE });
                }
            }
            Some(current) => {
                let ended = format_rfc3339(current.certificate.life().ends);
                let why = self.request_error.as_ref().map_or_else(
                    || self.issuer.missing().unwrap_or_else(|| "another one is being requested".to_owned()),
                    |error| error.text.clone(),
                );
                health.set_failed(ErrorCode::CertificateEnded, format!("the certificate has ended at {ended}: {why}"));
                health.set_note(None);
                health.set_certificate(Some(self.entry(current)));
                self.set_retry();
                self.set_state(ENDED);
            }
            None => match (&self.request_error, self.issuer.missing()) {
                (Some(RequestError { code, text }), _) => {
                    health.set_failed(*code, text.as_str());
                    self.set_retry();
                    self.set_state(FAILING);
                }
                (None, reason) => {
                    health.set_not_ready(reason.unwrap_or_else(|| "the certificate is being requested".to_owned()));
                    self.set_state(WAITING);
                }
            },
        }
    }

    /// Warns of what may make the certificate fail later.
    fn warn(&self) {
        match &self.request_error {
            Some(RequestError { code, text }) => {
                self.deps.health.warn(*code, format!("the certificate cannot be replaced: {text}"));
            }
            None if self.is_command_abandoned => self.deps.health.warn(ErrorCode::CommandFailed, ABANDONED),
            None => self.deps.health.clear_warning(),
        }
    }

    fn set_retry(&self) {
        if self.request_error.is_some()
            && let Some(at) = self.issuer.retry_at()
        {
            self.deps.health.set_retry_at(at);
        }
    }

    /// Describes the certificate for operators.
    fn describe(&self, current: &Current) -> String {
        let names = self.issuer.names(&current.certificate).join(", ");
        let (serial, ends) = (current.certificate.serial(), format_rfc3339(current.certificate.life().ends));
        let next = self.renewal_time(current).map_or_else(
            || "replaced when the Workload API sends another one".to_owned(),
            |at| format!("replaced at {}", format_rfc3339(at)),
        );
        format!("{names}; serial {serial}; ends at {ends}; {next}")
    }

    fn entry(&self, current: &Current) -> CertificateEntry {
        let life = current.certificate.life();
        CertificateEntry {
            names: self.issuer.names(&current.certificate),
            serial: current.certificate.serial(),
            begins: Some(life.begins.into()),
            expires: Some(life.ends.into()),
            replaced_at: self.renewal_time(current).map(Into::into),
        }
    }

    /// Time at which the certificate is to be replaced, or was; `None` where the issuer decides.
    fn renewal_time(&self, current: &Current) -> Option<SystemTime> {
        self.issuer.renewal_time(&current.certificate, self.deps.clock.now())
    }

    fn set_times(&self, current: &Current) {
        let metrics = self.deps.metrics.get::<IssuedCertificateMetrics>();
        let life = current.certificate.life();
        let now = self.deps.clock.now();
        let issued = current.issued.map_or(life.begins, |at| now.wall_time_of(at));
        let renewal = self.renewal_time(current).map(|at| (&metrics.renewal, at));
        for (gauge, time) in [(&metrics.issued, issued), (&metrics.expiry, life.ends)].into_iter().chain(renewal) {
            let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            gauge.get_or_create(&self.label()).set(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
    }

    fn set_state(&self, state: i64) {
        self.deps.metrics.get::<IssuedCertificateMetrics>().state.get_or_create(&self.label()).set(state);
    }

    fn label(&self) -> IssuedCertificateLabels {
        IssuedCertificateLabels { certificate: self.options.name.clone() }
    }

    fn path(&self) -> String {
        self.options.output.path.display().to_string()
    }

    /// Records the files of an earlier process.
    pub(super) fn record_restoration(&self, swept: usize, read: &Result<IssuedCertificate, NotReused>) {
        let certificate = &self.options.name;
        let path = self.path();
        if swept > 0 {
            tracing::info!(
                event = "file.swept",
                path,
                files = swept,
                "removed temporary files of an interrupted write"
            );
        }
        if self.is_command_abandoned {
            let code = ErrorCode::CommandFailed.as_str();
            tracing::warn!(event = "certificate.command.abandoned", certificate, code, "{ABANDONED}");
        }
        match read {
            Ok(issued) => {
                let (serial, expires) = (issued.serial(), format_rfc3339(issued.life().ends));
                tracing::info!(
                    event = "certificate.reused",
                    certificate,
                    serial,
                    expires,
                    "the certificate of the previous process is used again"
                );
            }
            Err(NotReused::Missing) => {}
            Err(reason) => {
                let reason = reason.as_str();
                tracing::info!(
                    event = "certificate.not_reused",
                    certificate,
                    path,
                    reason,
                    "the certificate in the files is not used; another one is requested"
                );
            }
        }
    }

    pub(super) fn record_rotation(&self) {
        let certificate = &self.options.name;
        tracing::info!(event = "certificate.rotation", certificate, "the certificate is replaced on request");
    }

    pub(super) fn record_issue(&mut self, issued: &IssuedCertificate, now: ClockReading) {
        let certificate = &self.options.name;
        let before = self.current.as_ref().map(|current| current.certificate.fingerprint());
        // The Workload API sends the same one again when the authorities of its domain change.
        if before != Some(issued.fingerprint()) {
            let (serial, expires) = (issued.serial(), format_rfc3339(issued.life().ends));
            tracing::info!(event = "certificate.issued", certificate, serial, expires, "a certificate was issued");
        }
        if let Some(lasted_seconds) = self.request_outage.record_success(now) {
            tracing::info!(
                event = "certificate.recovered",
                certificate,
                lasted_seconds,
                "the certificate can be requested again"
            );
        }
        self.request_error = None;
    }

    pub(super) fn report_request_failure(&mut self, error: RequestError, wait: Duration, now: ClockReading) {
        self.request_outage.record_failure(now);
        tracing::warn!(
            event = "certificate.failed",
            certificate = self.options.name,
            code = error.code.map(ErrorCode::as_str),
            error = error.text,
            retry_in_seconds = seconds(wait),
            "the certificate cannot be requested"
        );
        self.request_error = Some(error);
    }

    /// Records that the certificate has ended, and that no other one has taken its place.
    pub(super) fn record_end(&mut self) {
        let now = self.deps.clock.now().wall;
        let Some(current) = self.current.as_mut().filter(|current| current.certificate.has_ended(now)) else { return };
        current.is_end_reported = true;
        tracing::warn!(
            event = "certificate.ended",
            certificate = self.options.name,
            code = ErrorCode::CertificateEnded.as_str(),
            expires = format_rfc3339(current.certificate.life().ends),
            "the certificate has ended, and no other one could be requested"
        );
    }

    pub(super) fn record_write(&mut self, is_restoring: bool) {
        let certificate = &self.options.name;
        let path = self.path();
        if is_restoring {
            tracing::warn!(
                event = "certificate.restored",
                certificate,
                path,
                "another process deleted or changed the certificate's files; they were restored"
            );
            self.restore_backoff.record_restored(&self.deps.clock);
            self.count_change("restored");
        } else {
            tracing::info!(event = "certificate.written", certificate, path, "the certificate's files were replaced");
        }
        self.deps.health.record_update();
    }

    /// Records files that are left as others have changed them.
    pub(super) fn record_unrestored_change(&mut self) {
        let certificate = &self.options.name;
        let path = self.path();
        tracing::warn!(
            event = "certificate.left_changed",
            certificate,
            path,
            "another process deleted or changed the certificate's files; they are restored with the next certificate"
        );
        self.count_change("left");
        // Reported once: further changes do not matter until the files are written again.
        self.watched.clear();
    }

    fn count_change(&self, outcome: &'static str) {
        let output = format!("certificate/{}", self.options.name);
        self.deps.metrics.get::<OutputMetrics>().changes.get_or_create(&OutputChangeLabels { output, outcome }).inc();
    }

    pub(super) fn record_command(&self) {
        let certificate = &self.options.name;
        tracing::info!(event = "certificate.command.ok", certificate, "the certificate's command succeeded");
    }

    pub(super) fn record_delivery(&mut self) {
        if let Some(lasted_seconds) = self.delivery_outage.record_success(self.deps.clock.now()) {
            let certificate = &self.options.name;
            tracing::info!(
                event = "certificate.delivery.recovered",
                certificate,
                lasted_seconds,
                "the certificate's files and command are in order again"
            );
        }
    }

    pub(super) fn report_delivery_failure(&mut self, error: &DeliveryError, wait: Duration) {
        let now = self.deps.clock.now();
        self.delivery_outage.record_failure(now);
        let code = error.code();
        let text = format_chain(error);
        tracing::warn!(
            event = "certificate.delivery.failed",
            certificate = self.options.name,
            code = code.as_str(),
            error = text,
            path = self.path(),
            retry_in_seconds = seconds(wait),
            "the certificate cannot be delivered"
        );
        self.set_state(FAILING);
        self.deps.health.set_failed(code, text);
        self.deps.health.keep_previous(self.is_published);
        self.deps.health.set_retry_at(now + wait);
    }
}
