//! Configuration file of Terraform and OpenTofu that the gateway manages. It holds the gateway's `host` block and the
//! local token, or, if configured, the platform token only. Terraform reads every `*.tfrc.json` in `~/.terraform.d/`
//! besides the user's own files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::{Availability, CredentialWatch};
use keyward_machine::atomic_file::{self, Attributes, ReplaceError};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::ServiceHost;
use super::service_host::LOCAL_HOST;
use crate::local_token::AcceptedTokens;
use crate::platform_token::PlatformToken;

/// Settings of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerraformConfigFileOptions {
    /// Path of the file; its name ends in `.tfrc.json`.
    pub file: PathBuf,
    /// Mode, owner and group, if the gateway runs as another user.
    pub attributes: Attributes,
    /// Host that the file configures.
    pub host: ServiceHost,
    /// Token that the file contains.
    pub token_kind: ClientTokenKind,
}

/// Kind of token that clients get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientTokenKind {
    /// The local token, with the address of the gateway.
    #[default]
    LocalToken,
    /// The platform token, with which clients call the platform itself. They do not learn of rotations.
    PlatformToken,
}

/// Source of the token that clients get.
#[derive(Debug)]
pub enum ClientTokenSource {
    /// Local token, and the gateway's address `http://HOST:PORT`.
    Local(CredentialWatch<AcceptedTokens>, String),
    /// Platform token.
    Platform(CredentialWatch<PlatformToken>),
}

impl ClientTokenSource {
    /// Renders the file; `None` while there is no token.
    fn render(&mut self, host: &ServiceHost) -> Option<String> {
        let aliases = host.aliases();
        let host = host.to_string();
        let document = match self {
            Self::Local(watch, address) => {
                let Availability::Available(accepted) = watch.current().availability else { return None };
                let services = || json!({ "services": ServiceHost::services(address) });
                let hosts: Map<String, Value> = aliases.map(|host| (host, services())).collect();
                json!({
                    "host": hosts,
                    "credentials": { &host: { "token": accepted.current.expose_secret() } },
                })
            }
            Self::Platform(watch) => {
                let Availability::Available(token) = watch.current().availability else { return None };
                json!({ MARKER_KEY: MARKER_TEXT, "credentials": { &host: { "token": token.secret().expose_secret() } } })
            }
        };
        Some(format!("{document:#}\n"))
    }

    /// Returns the address and token for clients; `None` while there is no token. `platform` is the platform's own
    /// address.
    pub(super) fn current_token(&mut self, platform: &str) -> Option<(String, SecretString)> {
        match self {
            Self::Local(watch, address) => {
                let accepted = watch.current().availability.available()?;
                Some((address.clone(), accepted.current.clone()))
            }
            Self::Platform(watch) => {
                let token = watch.current().availability.available()?;
                Some((platform.to_owned(), token.secret().clone()))
            }
        }
    }

    /// Returns true after the token has changed; false if it never will again.
    pub(super) async fn changed(&mut self) -> bool {
        match self {
            Self::Local(watch, _) => watch.changed().await.is_ok(),
            Self::Platform(watch) => watch.changed().await.is_ok(),
        }
    }
}

/// Marks a file with the platform token as ours: Terraform ignores unknown keys.
const MARKER_KEY: &str = "//";
const MARKER_TEXT: &str = "written by keyward, which replaces and removes this file";

/// Writes and removes the file.
#[derive(Debug)]
pub struct TerraformConfigFile {
    options: TerraformConfigFileOptions,
    content: ClientTokenSource,
    clock: Clock,
    health: HealthHandle,
}

/// Backoff after an error: the folder may appear, and a foreign file may go.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

impl TerraformConfigFile {
    /// Writes nothing yet.
    pub fn new(
        options: TerraformConfigFileOptions,
        content: ClientTokenSource,
        clock: Clock,
        health: HealthHandle,
    ) -> Self {
        health.set_target(options.file.display().to_string());
        Self { options, content, clock, health }
    }

    /// Writes the file with each new token, until `stop`; errors are retried after 0.5 s to 60 s. A file
    /// that points to the gateway stays after a stop, for programs that run while it restarts. A file with the platform
    /// token is removed when the token ends, and at a stop. It is left as it is once it is `handed_over` to another writer.
    pub async fn run(mut self, stop: CancellationToken, handed_over: CancellationToken) {
        let file = self.options.file.clone();
        let _ = tokio::task::spawn_blocking(move || atomic_file::sweep_and_log(&file)).await;
        let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
        loop {
            let succeeded = match self.content.render(&self.options.host) {
                Some(text) => {
                    let written = self.run_blocking("write", move |options| write(options, &text)).await;
                    if written {
                        self.health.record_update();
                        self.health.set_ready();
                    }
                    written
                }
                None => self.remove("no platform token").await,
            };
            let retry_at = if succeeded {
                backoff.reset();
                None
            } else {
                let at = self.clock.now() + backoff.next_half_jitter(random_unit());
                self.health.set_retry_at(at);
                Some(at)
            };
            tokio::select! {
                biased;
                () = handed_over.cancelled() => return,
                () = stop.cancelled() => break,
                () = self.clock.sleep_until_some(retry_at) => {}
                changed = self.content.changed() => if !changed {
                    tokio::select! {
                        () = handed_over.cancelled() => return,
                        () = stop.cancelled() => break,
                    }
                },
            }
        }
        self.remove("stopped").await;
    }

    /// Removes a file with the platform token. Returns true if none is left.
    async fn remove(&self, why: &str) -> bool {
        if self.options.token_kind == ClientTokenKind::LocalToken {
            return true;
        }
        let removed = self.run_blocking("remove", remove).await;
        if removed {
            self.health.set_not_ready(why);
        }
        removed
    }

    /// Runs a file operation; logs its error. Returns true on success.
    async fn run_blocking(
        &self,
        operation: &str,
        what: impl FnOnce(&TerraformConfigFileOptions) -> Result<(), TerraformConfigFileError> + Send + 'static,
    ) -> bool {
        let options = self.options.clone();
        let error = match tokio::task::spawn_blocking(move || what(&options)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => format_chain(&error),
            Err(error) => error.to_string(),
        };
        tracing::error!(
            event = "gateway.terraform_config_file.failed",
            code = ErrorCode::TerraformConfigFile.as_str(),
            error,
            operation,
            "the configuration file for Terraform and OpenTofu could not be written or removed"
        );
        self.health.set_failed(ErrorCode::TerraformConfigFile, &error);
        false
    }
}

fn write(options: &TerraformConfigFileOptions, text: &str) -> Result<(), TerraformConfigFileError> {
    check_ownership(options)?;
    atomic_file::replace(&options.file, text.as_bytes(), &options.attributes)?;
    Ok(())
}

fn remove(options: &TerraformConfigFileOptions) -> Result<(), TerraformConfigFileError> {
    check_ownership(options)?;
    atomic_file::remove(&options.file)?;
    Ok(())
}

/// Passes if there is no file, or one that keyward wrote.
fn check_ownership(options: &TerraformConfigFileOptions) -> Result<(), TerraformConfigFileError> {
    let Some(text) = read_existing(&options.file)? else { return Ok(()) };
    match serde_json::from_str(&text) {
        Ok(document) if is_managed(&document) => Ok(()),
        _ => Err(TerraformConfigFileError::NotManaged { file: options.file.clone() }),
    }
}

/// Reads the token for a host from a file.
///
/// # Errors
/// The file cannot be read, or keyward did not write it.
pub(crate) fn read_token(file: &Path, host: &ServiceHost) -> Result<SecretString, TerraformConfigFileError> {
    let not_managed = || TerraformConfigFileError::NotManaged { file: file.to_owned() };
    let missing = || TerraformConfigFileError::Missing { file: file.to_owned() };
    let text = read_existing(file)?.ok_or_else(missing)?;
    let document: Value = serde_json::from_str(&text).map_err(|_| not_managed())?;
    if !is_managed(&document) {
        return Err(not_managed());
    }
    document["credentials"][host.to_string()]["token"].as_str().map(SecretString::from).ok_or_else(missing)
}

/// Reads an existing file of moderate size.
fn read_existing(file: &Path) -> Result<Option<String>, TerraformConfigFileError> {
    let unreadable = |source| TerraformConfigFileError::Read { file: file.to_owned(), source };
    match std::fs::symlink_metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        // Anything but a regular file is refused when it is written.
        Ok(document) if !document.is_file() => return Ok(None),
        Ok(document) if document.len() > MAX_FILE_SIZE => {
            return Err(TerraformConfigFileError::NotManaged { file: file.to_owned() });
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(file).map(Some).map_err(unreadable)
}

/// Largest file that is read to see who wrote it, in bytes.
const MAX_FILE_SIZE: u64 = 64 * 1024;

/// Returns true for a document that [`write()`] made: one host, perhaps with [`LOCAL_HOST`], with the gateway's services or
/// the marker, a token, and nothing else.
fn is_managed(document: &Value) -> bool {
    let only_member = |part: &str| {
        document[part].as_object().filter(|members| members.len() == 1).and_then(|members| members.iter().next())
    };
    let has_only = |value: &Value, member: &str| {
        value.as_object().is_some_and(|members| members.len() == 1 && members.contains_key(member))
    };
    let Some((credentials_host, credentials)) = only_member("credentials") else { return false };
    let service_block = document["host"].as_object().is_some_and(|hosts| {
        let is_own = |(host, block): (&String, &Value)| {
            (host == credentials_host || host == LOCAL_HOST) && has_only(block, "services")
        };
        hosts.contains_key(credentials_host) && hosts.iter().all(is_own)
    });
    let has_marker = document[MARKER_KEY] == MARKER_TEXT;
    document.as_object().is_some_and(|members| members.len() == 2)
        && has_only(credentials, "token")
        && (service_block || has_marker)
}

/// Error of writing, removing or reading the file.
#[derive(Debug, thiserror::Error)]
pub enum TerraformConfigFileError {
    /// Someone else's file has this path.
    #[error("{} was not written by keyward and stays as it is; name another file, or remove it", file.display())]
    NotManaged {
        /// Path of the file.
        file: PathBuf,
    },
    /// There is no file, or no token for that host.
    #[error("{} contains no token; is the gateway running?", file.display())]
    Missing {
        /// Path of the file.
        file: PathBuf,
    },
    /// The existing file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Underlying error.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written or removed.
    #[error(transparent)]
    Write(#[from] ReplaceError),
}

#[cfg(test)]
mod tests;
