//! The first token: whoever comes first to a store that has none gets it. An operator may let it be made once more.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::acl_service::Directory;
use super::caller::Live;
use super::error::ServiceError;
use super::repository::{Changes, retrying};
use super::tokens::NewToken;
use crate::acl::model::id::Id;
use crate::acl::model::links::Links;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::policy::GLOBAL_MANAGEMENT;
use crate::acl::model::secret::PlainSecret;
use crate::acl::store::{Freshness, Key};
use crate::error_chain::format_chain;
use crate::secret;

/// That it was done.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    accessor: Id,
}

/// The file by which an operator lets the first token be made once more: it holds the index that a refusal tells.
#[derive(Debug, Clone)]
pub struct ResetFile(PathBuf);

impl ResetFile {
    /// The file in that folder.
    pub fn of(folder: &Path) -> Self {
        Self(folder.join("acl-bootstrap-reset"))
    }

    /// The index in it; `None` without such a file, or where it holds none.
    pub async fn index(&self) -> Option<u64> {
        let path = self.0.clone();
        let read = tokio::task::spawn_blocking(move || match path.try_exists() {
            Ok(false) => Ok(None),
            _ => Some(secret::read_file(&path)).transpose(),
        });
        let text = match read.await {
            Ok(read) => read.map_err(|error| format_chain(&error)),
            Err(error) => Err(error.to_string()),
        };
        let number = |text: SecretString| text.expose_secret().parse().map_err(|_| "it holds no number".to_owned());
        let index = text.and_then(|text| text.map(number).transpose());
        index.unwrap_or_else(|error| {
            let path = self.0.display();
            tracing::warn!(event = "acl.bootstrap.reset.unusable", %path, error, "no index can be taken from it");
            None
        })
    }

    /// Notes that it was used, and removes it. Where that fails it is of no use any more, for its index counts once.
    pub async fn remove(&self) {
        tracing::info!(event = "acl.bootstrap.reset", "the first token was made once more, as an operator allowed");
        if let Err(error) = tokio::fs::remove_file(&self.0).await {
            let path = self.0.display();
            tracing::warn!(event = "acl.bootstrap.reset.left", %path, %error, "the file counts no more: remove it");
        }
    }
}

fn key() -> Key {
    Key::of(&["bootstrap", "done"])
}

impl Directory {
    /// Makes the first token, which may do everything: once, and once more for each time that `reset` is the index that a
    /// refusal tells. Tokens that were made before are not touched.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`] if it was done before.
    pub async fn bootstrap(&self, secret: &PlainSecret, reset: Option<u64>) -> Result<Live, ServiceError> {
        retrying(|| self.try_bootstrap(secret, reset)).await
    }

    async fn try_bootstrap(&self, secret: &PlainSecret, reset: Option<u64>) -> Result<Live, ServiceError> {
        let namespace = NamespaceName::default_one();
        let changes = match self.records.get::<Done>(&key(), Freshness::Linearizable).await? {
            None => Changes::default().absent(&key()),
            // The index is checked again in the batch that uses it up: several servers may be asked at once.
            Some(done) if reset == Some(done.modified.0) => Changes::default().unchanged(&key(), done.modified),
            Some(done) => {
                let index = done.modified.0;
                let text = format!("Permission denied: ACL bootstrap no longer allowed (reset index: {index})");
                return Err(ServiceError::Forbidden(text));
            }
        };
        let home = self.home(&namespace).await?;
        let accessor = Id::random();
        let new = NewToken {
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
        self.make_token(&home, new, changes.put(key(), &Done { accessor })?).await
    }
}
