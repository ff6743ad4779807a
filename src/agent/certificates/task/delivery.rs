//! Delivery of a certificate: its files, their command, and changes of the files by others.

use std::sync::Arc;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::Availability;
use keyward_machine::atomic_file::Outcome;
use keyward_machine::command::{CommandError, ProvidedEnv};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;

use super::CertificateTask;
use crate::certificates::metrics::IssuedCertificateMetrics;
use crate::certificates::output::WriteError;
use crate::output_watch::OnMissing;

/// Reason why the files or their command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the certificate's command failed")]
    Command(#[source] Arc<CommandError>),
    #[error("the writing task panicked; this is a bug in keyward")]
    Broken,
}

impl DeliveryError {
    /// Returns the code for operators.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Write(WriteError::Replace(error)) => error.into(),
            Self::Write(WriteError::Password(_)) => ErrorCode::CertificateFile,
            Self::Command(_) => ErrorCode::CommandFailed,
            Self::Write(WriteError::Pkcs12(_) | WriteError::OtherKind) | Self::Broken => ErrorCode::OutputFailed,
        }
    }
}

impl CertificateTask {
    /// Restores the files, or leaves them, after others have changed them.
    pub(super) async fn check_files(&mut self) {
        self.check_at = None;
        if self.deliver_at.is_some() || !self.current.as_ref().is_some_and(|current| current.is_written) {
            return;
        }
        if !self.watched.is_changed().await {
            return;
        }
        if self.options.on_missing == OnMissing::Leave {
            return self.record_unrestored_change();
        }
        if let Some(current) = &mut self.current {
            current.is_written = false;
        }
        self.deliver(true).await;
    }

    /// Writes the files if they do not hold the certificate yet, and runs the command after a change. Returns what has failed.
    pub(super) async fn deliver(&mut self, is_restoring: bool) -> Option<String> {
        let clock = self.deps.clock.clone();
        if self.deliver_at.is_some_and(|at| !clock.has_reached(at)) {
            return None;
        }
        self.deliver_at = None;
        let now = clock.now().wall;
        let current = self.current.as_ref().filter(|current| !current.certificate.has_ended(now))?;
        if current.is_written && !self.command_pending {
            return None;
        }
        match self.write_and_run(is_restoring).await {
            Ok(()) => {
                self.write_backoff.reset();
                self.record_delivery();
                None
            }
            Err(error) => {
                let wait = self.write_backoff.next_half_jitter(random_unit());
                self.deliver_at = Some(clock.now() + wait);
                self.report_delivery_failure(&error, wait);
                Some(ErrorCode::tag(Some(error.code()), &format_chain(&error)))
            }
        }
    }

    async fn write_and_run(&mut self, is_restoring: bool) -> Result<(), DeliveryError> {
        if let Some(current) = self.current.as_ref().filter(|current| !current.is_written) {
            let (output, digest) = (self.options.output.clone(), self.digest.clone());
            let certificate = Arc::clone(&current.certificate);
            let has_command = self.options.command.is_some();
            self.write.spawn_blocking(move || output.write(&certificate, &digest, has_command));
            let Some(Ok(outcome)) = self.write.join_next().await else { return Err(DeliveryError::Broken) };
            // The last step of a write comes after the new files are in place. No run that has begun is for them.
            self.command_pending |= has_command && outcome.is_err();
            if let Some(command) = self.command.as_mut().filter(|_| !matches!(outcome, Ok(Outcome::Unchanged))) {
                command.record_change();
            }
            let outcome = outcome?;
            self.watch_files().await;
            if let Some(current) = &mut self.current {
                current.is_written = true;
            }
            if outcome == Outcome::Written {
                self.command_pending = true;
                self.is_command_abandoned = false;
                self.record_write(is_restoring);
            }
        }
        if let Some(command) = self.command.as_mut().filter(|_| self.command_pending) {
            let result = command.run(&self.options.output.path).await;
            let metrics = self.deps.metrics.get::<IssuedCertificateMetrics>();
            metrics.count_command(&self.options.name, result.is_ok());
            result.map_err(DeliveryError::Command)?;
            self.record_command();
        }
        self.command_pending = false;
        if !self.is_published {
            self.is_published = true;
            let now = self.deps.clock.now();
            self.deps.publisher.publish(Availability::Available(Arc::new(ProvidedEnv::File)), Some(now));
        }
        Ok(())
    }

    /// Watches the files as they are now.
    async fn watch_files(&mut self) {
        let output = self.options.output.clone();
        let paths = tokio::task::spawn_blocking(move || output.watched_paths()).await;
        self.watched.renew(&paths.unwrap_or_default()).await;
    }
}
