//! Bootstrap: creates the first token of a store. An operator can allow it again with a reset file.

use std::path::{Path, PathBuf};

use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use serde::{Deserialize, Serialize};

use super::acl_service::AclService;
use super::error::ServiceError;
use super::rejection::Forbidden;
use super::tokens::{CreatedToken, ValidatedToken};
use super::transaction::{Transaction, retry_on_conflict};
use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::names::NamespaceName;
use crate::model::policy::GLOBAL_MANAGEMENT;
use crate::model::secret::PlainSecret;
use crate::store::{Freshness, Key};

/// Record of a completed bootstrap.
#[derive(Debug, Serialize, Deserialize)]
struct BootstrapRecord {
    accessor: Id,
}

/// File with which an operator allows another bootstrap: it contains the reset index from the error message (as
/// Consul's `acl-bootstrap-reset`).
#[derive(Debug, Clone)]
pub(crate) struct ResetFile(PathBuf);

impl ResetFile {
    /// Returns the file in the data folder.
    pub(crate) fn in_dir(folder: &Path) -> Self {
        Self(folder.join("acl-bootstrap-reset"))
    }

    /// Reads the index; `None` if the file is missing or contains no number.
    pub(crate) async fn index(&self) -> Option<u64> {
        let path = self.0.clone();
        let read = tokio::task::spawn_blocking(move || match path.try_exists() {
            Ok(false) => Ok(None),
            _ => Some(secret::read_file(&path)).transpose(),
        });
        let text = match read.await {
            Ok(read) => read.map_err(|error| format_chain(&error)),
            Err(error) => Err(error.to_string()),
        };
        let number = |text: SecretString| text.expose_secret().parse().map_err(|_| "it contains no number".to_owned());
        let index = text.and_then(|text| text.map(number).transpose());
        index.unwrap_or_else(|error| {
            let path = self.0.display().to_string();
            tracing::warn!(
                event = "acl.bootstrap.reset.unusable",
                path,
                error,
                "ignoring the bootstrap reset file: it contains no index"
            );
            None
        })
    }

    /// Logs the use of the file and deletes it. If deletion fails it is harmless: an index is accepted once.
    pub(crate) async fn remove(&self) {
        tracing::info!(event = "acl.bootstrap.reset", "bootstrapped again with the reset file");
        if let Err(error) = tokio::fs::remove_file(&self.0).await {
            let path = self.0.display().to_string();
            let error = error.to_string();
            tracing::warn!(
                event = "acl.bootstrap.reset.cleanup_failed",
                path,
                error,
                "cannot delete the used bootstrap reset file; delete it by hand"
            );
        }
    }
}

fn key() -> Key {
    Key::new(&["bootstrap", "done"])
}

impl AclService {
    /// Creates a token with the policy `global-management`: the first time, and again if `reset` is the current reset
    /// index. Existing tokens are not changed. The secret is `secret`, or random. Fails with
    /// [`ServiceError::Forbidden`] if the bootstrap was done before.
    pub(crate) async fn bootstrap(
        &self,
        secret: Option<&PlainSecret>,
        reset: Option<u64>,
    ) -> Result<CreatedToken, ServiceError> {
        retry_on_conflict(|| self.try_bootstrap(secret, reset)).await
    }

    async fn try_bootstrap(
        &self,
        secret: Option<&PlainSecret>,
        reset: Option<u64>,
    ) -> Result<CreatedToken, ServiceError> {
        let namespace = NamespaceName::default_namespace();
        let transaction = match self.typed_store.get::<BootstrapRecord>(&key(), Freshness::Linearizable).await? {
            None => Transaction::default().require_absent(&key()),
            // The commit checks the index again, as several servers may receive the request at once.
            Some(done) if reset == Some(done.modified.0) => {
                Transaction::default().require_unchanged(&key(), done.modified)
            }
            Some(done) => {
                // The index is the record's revision, which each bootstrap changes: a reset file works once.
                return Err(Forbidden::Bootstrap(done.modified.0).into());
            }
        };
        let target = self.records.writable_namespace(&namespace).await?;
        // After the check above: a caller that may not bootstrap does not learn which secrets are in use.
        let secret = self.tokens().new_id("BootstrapSecret", secret.map(PlainSecret::reveal)).await?;
        let secret = PlainSecret::from_presented(&secret.to_string());
        let accessor = Id::random();
        let new = ValidatedToken {
            accessor,
            secret: secret.clone(),
            description: "Bootstrap Token (Global Management)".to_owned(),
            links: Links { policies: vec![GLOBAL_MANAGEMENT], ..Links::default() },
            roles: Vec::new(),
            local: false,
            create_time: self.now(),
            expiration_time: None,
            login: None,
        };
        let transaction = transaction.put(key(), &BootstrapRecord { accessor })?;
        Ok(CreatedToken { live: self.token_records().insert(&target, new, transaction).await?, secret })
    }
}
