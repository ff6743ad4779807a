//! Platform token in a file that another program keeps fresh.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, CredentialPublisher, RefreshSignal, credential_channel};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::secret;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use tokio_util::sync::CancellationToken;

use super::{PlatformToken, PlatformTokenSource, watch_token_file};

/// Reads the file at the start, when it changes, and when the platform rejects the token.
#[derive(Debug)]
pub struct PlatformTokenFile {
    path: PathBuf,
    clock: Clock,
    health: HealthHandle,
    publisher: CredentialPublisher<PlatformToken>,
    refresh_signal: RefreshSignal,
    current: Option<Arc<PlatformToken>>,
}

impl PlatformTokenFile {
    /// Reads the file once, so that an existing token is served from the start; blocks for that. `health` is ready
    /// while there is a token.
    pub fn new(path: PathBuf, clock: Clock, health: HealthHandle) -> (Self, PlatformTokenSource) {
        let origin = format!("file {}", path.display());
        let (publisher, watch) = credential_channel("the platform token's file has not been read yet");
        let refresh_signal = RefreshSignal::new(clock.clone());
        let source = PlatformTokenSource { watch, refresh_signal: refresh_signal.clone(), origin };
        let now = clock.now();
        let mut file = Self { path, clock, health, publisher, refresh_signal, current: None };
        file.record_read(read_token(&file.path, now), now);
        (file, source)
    }

    /// Publishes changes of the file until `stop`.
    ///
    /// A missing or empty file does not remove the token: its writer may be replacing it, and the platform rejects a
    /// token that is no longer valid.
    pub async fn run(mut self, stop: CancellationToken) {
        let watch = watch_token_file();
        loop {
            watch.follow(&self.path);
            self.read().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.refresh_signal.requested() => {
                    self.read().await;
                    self.refresh_signal.complete();
                }
                // In a busy folder each change costs a read of the file.
                () = watch.changed() => tokio::time::sleep(SETTLE_TIME).await,
                () = self.clock.sleep(RETRY_INTERVAL), if self.current.is_none() => {}
            }
        }
    }

    async fn read(&mut self) {
        let path = self.path.clone();
        let now = self.clock.now();
        let read = tokio::task::spawn_blocking(move || read_token(&path, now)).await;
        self.record_read(read.unwrap_or_else(|error| Err(error.to_string())), now);
    }

    fn record_read(&mut self, read: Result<PlatformToken, String>, now: ClockReading) {
        match read {
            Ok(token) if self.current.as_ref().is_some_and(|current| current.is_same(&token)) => {
                self.health.clear_warning();
                self.publisher.record_check(now);
            }
            Ok(token) => {
                let token = Arc::new(token);
                self.current = Some(Arc::clone(&token));
                self.publisher.publish(Availability::Available(token), Some(now));
                self.health.record_update();
                self.health.clear_warning();
                self.health.set_ready();
                tracing::info!(
                    event = "gateway.token.loaded",
                    path = self.path.display().to_string(),
                    "the platform token was loaded from its file"
                );
            }
            Err(reason) if self.current.is_some() => {
                tracing::warn!(
                    event = "gateway.token.read_failed",
                    code = ErrorCode::PlatformTokenMissing.as_str(),
                    error = reason,
                    "the platform token cannot be read; the previous one stays in use"
                );
                self.health.warn(
                    ErrorCode::PlatformTokenMissing,
                    format!("the platform token cannot be read, and the previous one stays in use: {reason}"),
                );
                self.publisher.record_check(now);
            }
            Err(reason) => {
                self.health.set_failed(ErrorCode::PlatformTokenMissing, reason.clone());
                let reason = format!("there is no platform token: {reason}").into();
                self.publisher.publish(Availability::Unavailable { reason, retry_after: RETRY_INTERVAL }, Some(now));
            }
        }
    }
}

/// Reads the token from a file. The error never contains the token.
fn read_token(path: &Path, now: ClockReading) -> Result<PlatformToken, String> {
    let secret = secret::read_file(path).map_err(|error| format_chain(&error))?;
    PlatformToken::parse(secret, now).map_err(|error| format!("{}: {error}", path.display()))
}

/// Delay between a change and the read: several changes in a row are one.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Interval of reads while the file holds no token yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
