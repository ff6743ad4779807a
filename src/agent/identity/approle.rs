//! The id of a role and its secret id, from files; the secret id may come in a wrapping that opens once.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};

use super::consumable_file::{KeptFile, unreadable};
use super::{Class, IdentityError, IdentityProof, IdentitySource};
use crate::agent::server_client::{CallError, Upstream, Verdict};
use crate::agent::token::ClientToken;
use crate::secret;

/// Where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppRole {
    /// File with the role's id. It is read anew at each login.
    pub role_id_file: PathBuf,
    /// File with the secret id, where the role wants one. It is read anew at each login.
    pub secret_id_file: Option<PathBuf>,
    /// Whether that file is removed once it is read.
    pub remove_secret_id: bool,
    /// The file holds a token that unwraps to the secret id; this path must have been wrapped.
    pub wrapping_path: Option<String>,
}

/// The source.
#[derive(Debug)]
pub(super) struct Source {
    options: AppRole,
    secret_id: Option<KeptFile>,
    upstream: Upstream,
    namespace: Option<String>,
    /// The wrapping that was opened last, and what was in it: it opens once.
    opened: Mutex<Option<(SecretString, SecretString)>>,
}

const NAME: &str = "approle";

impl Source {
    pub(super) fn new(options: AppRole, upstream: &Upstream, namespace: Option<&str>) -> Self {
        let secret_id = options.secret_id_file.clone().map(|file| KeptFile::new(file, options.remove_secret_id));
        let namespace = namespace.map(str::to_owned);
        Self { options, secret_id, upstream: upstream.clone(), namespace, opened: Mutex::default() }
    }

    async fn secret_id(&self) -> Result<Option<SecretString>, IdentityError> {
        let Some(file) = &self.secret_id else { return Ok(None) };
        let read = file.read(NAME)?;
        match &self.options.wrapping_path {
            None => Ok(Some(read)),
            Some(path) => self.unwrap(read, path).await.map(Some),
        }
    }

    async fn unwrap(&self, wrapping: SecretString, path: &str) -> Result<SecretString, IdentityError> {
        let known = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, inside)) =
            known.filter(|(opened, _)| secret::ct_eq(opened, wrapping.expose_secret().as_bytes()))
        {
            return Ok(inside);
        }
        let denied = |message: String, hint| IdentityError {
            class: Class::Denied,
            source_name: NAME,
            message,
            hint: Some(hint),
            retry_after: None,
        };
        let token = ClientToken::parse(wrapping.clone())
            .ok_or_else(|| denied("the secret id's file holds no wrapping token".to_owned(), NOT_WRAPPED))?;
        let namespace = self.namespace.as_deref();
        let failed = |error: CallError| match error.verdict() {
            Verdict::Unavailable => IdentityError {
                class: Class::Transient,
                source_name: NAME,
                message: format!("the secret id cannot be unwrapped: {error}"),
                hint: None,
                retry_after: error.retry_after(),
            },
            _ => denied(format!("the secret id cannot be unwrapped: {error}"), OPENED),
        };
        let made_by = self.upstream.wrapped_path(&token, namespace).await.map_err(failed)?;
        if made_by.trim_matches('/') != path.trim_matches('/') {
            return Err(denied(format!("what is wrapped was made by {made_by:?}, not by {path:?}"), FOREIGN));
        }
        let inside = self.upstream.unwrap(&token, "secret_id", namespace).await.map_err(failed)?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        *opened = Some((wrapping, inside.clone()));
        Ok(inside)
    }
}

const NOT_WRAPPED: &str = "leave secret_id_wrapping_path out if the file holds the secret id itself";
const OPENED: &str = "it has ended, or somebody else opened it: find out who, then make a new one";
const FOREIGN: &str = "somebody may have put another one in its place; secret_id_wrapping_path says what is expected";

#[async_trait]
impl IdentitySource for Source {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let role_id = secret::read_file(&self.options.role_id_file).map_err(|error| unreadable(NAME, &error))?;
        Ok(IdentityProof::AppRole { role_id, secret_id: self.secret_id().await? })
    }

    fn describe(&self) -> String {
        format!("approle (role id in {})", self.options.role_id_file.display())
    }
}
