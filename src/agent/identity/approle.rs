//! `AppRole`: a role id and a secret id from files. The secret id may be wrapped in a single-use token.

use std::path::PathBuf;

use async_trait::async_trait;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;

use super::consumable_file::{ConsumableFile, ConsumedSecrets, unreadable};
use super::{IdentityError, IdentityErrorKind, IdentityProof, IdentitySource};
use crate::server_client::{CallError, ServerClient, TokenVerdict};
use crate::token::ClientToken;

/// Files of a role id and its secret id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppRoleOptions {
    /// File of the role id, read at each login.
    pub role_id_file: PathBuf,
    /// File of the secret id, if the role requires one; read at each login.
    pub secret_id_file: Option<PathBuf>,
    /// True if the secret id's file is deleted after it is read.
    pub remove_secret_id: bool,
    /// Set if the file holds a wrapping token: the API path that must have created it.
    pub wrapping_path: Option<String>,
}

/// Identity source of the `AppRole` method.
#[derive(Debug)]
pub(super) struct AppRoleSource {
    options: AppRoleOptions,
    secret_id: Option<ConsumableFile>,
    upstream: ServerClient,
    namespace: Option<String>,
    consumed: ConsumedSecrets,
}

const NAME: &str = "approle";

impl AppRoleSource {
    pub(super) fn new(
        options: AppRoleOptions,
        upstream: &ServerClient,
        namespace: Option<&str>,
        consumed: &ConsumedSecrets,
    ) -> Self {
        let file = options.secret_id_file.clone();
        let secret_id = file.map(|file| ConsumableFile::new(file, options.remove_secret_id, consumed));
        let namespace = namespace.map(str::to_owned);
        Self { options, secret_id, upstream: upstream.clone(), namespace, consumed: consumed.clone() }
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
        let previous = self.consumed.unwrapped.lock().clone();
        if let Some((_, inside)) =
            previous.filter(|(opened, _)| secret::ct_eq(opened, wrapping.expose_secret().as_bytes()))
        {
            return Ok(inside);
        }
        let denied = |message: String, hint| IdentityError {
            kind: IdentityErrorKind::Denied,
            source_name: NAME,
            message,
            hint: Some(hint),
            retry_after: None,
        };
        let token = ClientToken::parse(wrapping.clone())
            .ok_or_else(|| denied("the secret id's file holds no wrapping token".to_owned(), NOT_WRAPPED))?;
        let namespace = self.namespace.as_deref();
        let failed = |error: CallError| match error.verdict() {
            TokenVerdict::Unavailable => IdentityError {
                kind: IdentityErrorKind::Transient,
                source_name: NAME,
                message: format!("the secret id cannot be unwrapped: {error}"),
                hint: None,
                retry_after: error.retry_after(),
            },
            _ => denied(format!("the secret id cannot be unwrapped: {error}"), ALREADY_UNWRAPPED),
        };
        // Checked before the token is used up: a thief who unwrapped it may have put a wrapping token of his own into
        // the file.
        let creation_path = self.upstream.wrapping_creation_path(&token, namespace).await.map_err(failed)?;
        if creation_path.trim_matches('/') != path.trim_matches('/') {
            return Err(denied(
                format!("the wrapping token was created by {creation_path:?}, not by {path:?}"),
                WRONG_CREATION_PATH,
            ));
        }
        let inside = self.upstream.unwrap(&token, "secret_id", namespace).await.map_err(failed)?;
        // Unwrapping works once: without this, the next login would have no secret id.
        *self.consumed.unwrapped.lock() = Some((wrapping, inside.clone()));
        Ok(inside)
    }
}

const NOT_WRAPPED: &str = "leave secret_id_wrapping_path out if the file holds the secret id itself";
const ALREADY_UNWRAPPED: &str =
    "the wrapping token has expired or was already unwrapped by someone else: investigate, then create a new one";
const WRONG_CREATION_PATH: &str = "somebody may have replaced it; secret_id_wrapping_path sets the expected path";

#[async_trait]
impl IdentitySource for AppRoleSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let role_id = secret::read_file(&self.options.role_id_file).map_err(|error| unreadable(NAME, &error))?;
        Ok(IdentityProof::AppRole { role_id, secret_id: self.secret_id().await? })
    }

    fn describe(&self) -> String {
        format!("approle (role id in {})", self.options.role_id_file.display())
    }

    fn files(&self) -> Vec<PathBuf> {
        let secret_id = self.options.secret_id_file.clone();
        std::iter::once(self.options.role_id_file.clone()).chain(secret_id).collect()
    }
}
