//! Output of a new secret: once to standard output, or into a file with mode 0600.

use std::path::{Path, PathBuf};

use clap::Args;
use keyward_acl::client::{AclClientError, Token};
use keyward_machine::atomic_file::{self, Attributes};
use keyward_machine::secret_string::SecretString;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::Exit;

/// Flags that say where to write the secret of a new token.
#[derive(Debug, Args)]
pub(super) struct SecretOutputFlags {
    /// Write the secret to this file with mode 0600 instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

/// Flags that say where to write the secret of a token that takes the place of no other.
#[derive(Debug, Args)]
pub(super) struct NewFileFlags {
    #[command(flatten)]
    output: SecretOutputFlags,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

impl NewFileFlags {
    /// Refuses a file that exists, before a token is made for it: it may hold the secret of another token.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        match &self.output.out {
            Some(path) if !self.force && path.symlink_metadata().is_ok() => Err(already_exists(path)),
            _ => Ok(()),
        }
    }

    /// Delivers the secret like [`SecretOutputFlags::deliver`], but replaces a file only with `--force`.
    pub(super) async fn deliver(
        &self,
        token: &Token,
        undo: impl AsyncFnOnce() -> Result<bool, AclClientError>,
    ) -> Result<SecretDisplay, CommandFailure> {
        self.output.deliver_by(token, if self.force { write } else { write_new }, undo).await
    }
}

impl SecretOutputFlags {
    /// Writes the secret of a new token to the file, if one is named. If that fails, deletes the token with `undo`, as
    /// nobody could use it.
    pub(super) async fn deliver(
        &self,
        token: &Token,
        undo: impl AsyncFnOnce() -> Result<bool, AclClientError>,
    ) -> Result<SecretDisplay, CommandFailure> {
        self.deliver_by(token, write, undo).await
    }

    /// Delivers the secret, by `write` if it goes to a file.
    async fn deliver_by(
        &self,
        token: &Token,
        write: fn(&Path, &SecretString) -> Result<(), CommandFailure>,
        undo: impl AsyncFnOnce() -> Result<bool, AclClientError>,
    ) -> Result<SecretDisplay, CommandFailure> {
        let secret = secret_of(token)?;
        let Some(path) = &self.out else { return Ok(SecretDisplay::Plain(secret)) };
        let Err(failure) = write(path, &secret) else { return Ok(SecretDisplay::InFile(path.clone())) };
        Err(match undo().await {
            Ok(_) => failure.and("the new token was deleted"),
            Err(error) => {
                let id = token.accessor_id;
                failure.and(&format!(
                    "the token {id} could not be deleted: {error}; delete it with `keyward acl token delete`"
                ))
            }
        })
    }
}

/// Display of a secret in a command's output.
#[derive(Debug)]
pub(super) enum SecretDisplay {
    /// The secret itself.
    Plain(SecretString),
    /// The file that holds it.
    InFile(PathBuf),
    /// Not requested: `--show-secret` prints it.
    NotRequested,
    /// Hidden by the server.
    Hidden,
}

impl SecretDisplay {
    /// In words for people.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Plain(secret) => secret.expose_secret().to_owned(),
            Self::InFile(path) => format!("in {}", path.display()),
            Self::NotRequested => "(--show-secret prints it)".to_owned(),
            Self::Hidden => "(hidden: requires acl:write)".to_owned(),
        }
    }

    /// Returns the secret, if it is to be printed.
    pub(super) fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(secret) => Some(secret.expose_secret()),
            _ => None,
        }
    }
}

/// The secret of a token that was just made.
pub(super) fn secret_of(token: &Token) -> Result<SecretString, CommandFailure> {
    let missing_secret =
        || format!("the server returned no secret for the new token {}; delete the token", token.accessor_id);
    token.secret_id.clone().ok_or_else(|| CommandFailure::new(Exit::Remote, missing_secret()))
}

/// Puts a secret into a file as a whole.
pub(super) fn write(path: &Path, secret: &SecretString) -> Result<(), CommandFailure> {
    atomic_file::replace(path, secret.expose_secret().as_bytes(), &PRIVATE)
        .map(|_| ())
        .map_err(|error| CommandFailure::local(&error))
}

/// Puts a secret into a new file as a whole.
fn write_new(path: &Path, secret: &SecretString) -> Result<(), CommandFailure> {
    match atomic_file::create(path, secret.expose_secret().as_bytes(), &PRIVATE) {
        Ok(true) => Ok(()),
        Ok(false) => Err(already_exists(path)),
        Err(error) => Err(CommandFailure::local(&error)),
    }
}

const PRIVATE: Attributes = Attributes { mode: 0o600, owner: None, group: None };

fn already_exists(path: &Path) -> CommandFailure {
    let text = format!(
        "{} exists already, and may hold another token; name another file with --out, or replace it with --force",
        path.display()
    );
    CommandFailure::new(Exit::Failed, text)
}

/// Deletes a token that this client created.
pub(super) async fn delete(service: &AclConnection, token: &Token) -> Result<bool, AclClientError> {
    service.client.delete::<Token>(&token.accessor_id).await
}
