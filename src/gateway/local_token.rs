//! Local token: the credential that local callers present to the gateway.
//!
//! It is worthless elsewhere, survives a restart, and is rotated with overlap: a client reads its credential once and
//! may run for hours.

mod owner;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_credentials::credential_watch::{Availability, CredentialPublisher, CredentialWatch, credential_channel};
use keyward_machine::atomic_file::{self, Attributes, ReplaceError};
use keyward_machine::clock::Clock;
use keyward_machine::secret::{self, SecretFileError};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_rfc3339;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use self::owner::OwnerError;

/// Settings of the local token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTokenOptions {
    /// File of the current token, mode 0600. The previous one is in a file beside it whose name ends in `.previous`.
    pub file: PathBuf,
    /// Age at which it is rotated; `None` keeps it forever.
    pub max_age: Option<Duration>,
    /// Time that the previous token stays valid after a rotation.
    pub grace: Duration,
    /// Gateway that the token belongs to, in one line: the platform and the source of its token.
    pub owner: String,
}

/// Tokens that callers may present.
#[derive(Debug)]
pub struct AcceptedTokens {
    /// Current token, which clients are given.
    pub current: SecretString,
    /// Creation time.
    pub(crate) created: SystemTime,
    /// Previous token and its end.
    pub(crate) previous: Option<(SecretString, SystemTime)>,
}

/// Token that a caller has presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchedToken {
    /// The current token.
    Current,
    /// The previous token.
    Previous,
}

impl AcceptedTokens {
    /// Compares a presented token with the accepted ones in constant time.
    pub(crate) fn match_token(&self, presented: &[u8], now: SystemTime) -> Option<MatchedToken> {
        // Both are compared always, so that the time does not tell which one was tried.
        let current = secret::ct_eq(&self.current, presented);
        let previous = self.previous.as_ref().is_some_and(|(token, _)| secret::ct_eq(token, presented));
        let in_time = self.previous.as_ref().is_some_and(|(_, until)| now < *until);
        match (current, previous && in_time) {
            (true, _) => Some(MatchedToken::Current),
            (false, true) => Some(MatchedToken::Previous),
            (false, false) => None,
        }
    }
}

/// Creates, rotates and publishes the local token.
#[derive(Debug)]
pub struct LocalTokenManager {
    options: LocalTokenOptions,
    clock: Clock,
    publisher: CredentialPublisher<AcceptedTokens>,
    accepted: Arc<AcceptedTokens>,
}

/// Prefix of every local token, so that secret scanners and people recognise a leaked one.
const PREFIX: &str = "keyward-local-";

/// Minimum length of a token that was written into the file by hand, in bytes.
const MIN_LENGTH: usize = 20;

impl LocalTokenManager {
    /// Reads the token from its file, or creates the first one. Blocks for a few file operations.
    pub fn open(
        options: LocalTokenOptions,
        clock: Clock,
    ) -> Result<(Self, CredentialWatch<AcceptedTokens>), LocalTokenError> {
        owner::claim(&options.file, &options.owner)?;
        for file in [&options.file, &previous_file(&options.file)] {
            atomic_file::sweep_and_log(file);
        }
        let now = clock.now().wall;
        let accepted = if options.file.exists() {
            let current = read(&options.file)?;
            // Rewritten to restore mode 0600, in case someone has opened the file to others.
            write(&options.file, &current)?;
            // A time in the future, after the clock was set back, would postpone the rotation.
            let created = std::fs::metadata(&options.file).and_then(|file| file.modified()).unwrap_or(now).min(now);
            let previous = read_previous(&previous_file(&options.file)).filter(|(_, until)| now < *until);
            AcceptedTokens { current, created, previous }
        } else {
            let current = generate()?;
            write(&options.file, &current)?;
            AcceptedTokens { current, created: now, previous: None }
        };
        let accepted = Arc::new(accepted);
        let (publisher, watch) = credential_channel("the local token is being created");
        publisher.publish(Availability::Available(Arc::clone(&accepted)), None);
        Ok((Self { options, clock, publisher, accepted }, watch))
    }

    /// Rotates on schedule until `stop`. A failed rotation is retried after a minute; the current token stays valid
    /// meanwhile.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let wait = self.options.max_age.map(|max_age| {
                let age = self.clock.now().wall.duration_since(self.accepted.created).unwrap_or_default();
                max_age.saturating_sub(age)
            });
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(&self.clock, wait) => {}
            }
            if let Err(error) = self.rotate() {
                tracing::warn!(
                    event = "gateway.local_token.failed",
                    code = ErrorCode::LocalTokenFile.as_str(),
                    error = keyward_telemetry::error_chain::format_chain(&error),
                    "the local token could not be rotated; the current one stays valid"
                );
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.clock.sleep(RETRY_INTERVAL) => {}
                }
            }
        }
    }

    /// Creates a new token; the current one stays valid for the grace period.
    ///
    /// # Errors
    /// A file cannot be written. The current token stays.
    pub(crate) fn rotate(&mut self) -> Result<(), LocalTokenError> {
        let now = self.clock.now().wall;
        let current = generate()?;
        let until = now + self.options.grace;
        let old = &self.accepted.current;
        // The previous file is written first: after a crash between the two writes the current token is in both.
        let text = format!("{} {}", old.expose_secret(), format_rfc3339(until));
        atomic_file::replace(&previous_file(&self.options.file), text.as_bytes(), &PRIVATE)?;
        write(&self.options.file, &current)?;
        let accepted = AcceptedTokens { current, created: now, previous: Some((old.clone(), until)) };
        self.accepted = Arc::new(accepted);
        self.publisher.publish(Availability::Available(Arc::clone(&self.accepted)), None);
        tracing::info!(
            event = "gateway.local_token.rotated",
            previous_until = format_rfc3339(until),
            "the local token was rotated; the previous one stays valid for the grace period"
        );
        Ok(())
    }
}

const RETRY_INTERVAL: Duration = Duration::from_mins(1);

const PRIVATE: Attributes = Attributes { mode: 0o600, owner: None, group: None };

async fn sleep(clock: &Clock, wait: Option<Duration>) {
    match wait {
        Some(wait) => clock.sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// Reads the token from a file such as [`LocalTokenOptions::file`].
pub(crate) fn read(file: &Path) -> Result<SecretString, LocalTokenError> {
    let token = secret::read_file(file)?;
    let text = token.expose_secret();
    // It is sent in a header (RFC 6750, 2.1).
    if text.len() < MIN_LENGTH || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(LocalTokenError::Malformed { file: file.to_owned() });
    }
    Ok(token)
}

fn write(file: &Path, token: &SecretString) -> Result<(), ReplaceError> {
    let line = format!("{}\n", token.expose_secret());
    atomic_file::replace(file, line.as_bytes(), &PRIVATE).map(|_| ())
}

fn previous_file(file: &Path) -> PathBuf {
    with_suffix(file, ".previous")
}

/// Appends a suffix to the file's name.
fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Reads the previous token, if its file exists and is complete. Without it, clients that hold it have to read the
/// current one.
fn read_previous(file: &Path) -> Option<(SecretString, SystemTime)> {
    let text = secret::read_file(file).ok()?;
    let (token, until) = text.expose_secret().split_once(' ')?;
    let until = OffsetDateTime::parse(until, &Rfc3339).ok()?;
    Some((SecretString::from(token), until.into()))
}

fn generate() -> Result<SecretString, LocalTokenError> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    aws_lc_rs::rand::fill(&mut *bytes).map_err(|_| LocalTokenError::Random)?;
    Ok(SecretString::from(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes.as_slice()))))
}

/// Error of the local token. Never contains a token.
#[derive(Debug, thiserror::Error)]
pub enum LocalTokenError {
    /// The file cannot be read.
    #[error("the local token cannot be read")]
    Read(#[from] SecretFileError),
    /// The file cannot be written.
    #[error("the local token cannot be written")]
    Write(#[from] ReplaceError),
    /// The file belongs to another gateway, or its owner cannot be recorded.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The file holds something else.
    #[error("{} contains no local token (at least {MIN_LENGTH} visible ASCII characters)", file.display())]
    Malformed {
        /// Path of the file.
        file: PathBuf,
    },
    /// The kernel returned no random bytes.
    #[error("the kernel returned no random bytes")]
    Random,
}

#[cfg(test)]
mod tests;
