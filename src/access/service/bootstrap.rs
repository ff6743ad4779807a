//! The first token: whoever comes first to a store that has none gets it.

use serde::{Deserialize, Serialize};

use super::caller::Live;
use super::directory::Directory;
use super::error::ServiceError;
use super::records::{Changes, retrying};
use super::tokens::NewToken;
use crate::access::model::id::Id;
use crate::access::model::links::Links;
use crate::access::model::names::NamespaceName;
use crate::access::model::policy::GLOBAL_MANAGEMENT;
use crate::access::model::secret::PlainSecret;
use crate::access::store::{Freshness, Key};

/// That it was done.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    accessor: Id,
}

fn key() -> Key {
    Key::of(&["bootstrap", "done"])
}

impl Directory {
    /// Makes the first token, which may do everything: once.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`] if it was done before.
    pub async fn bootstrap(&self, secret: &PlainSecret) -> Result<Live, ServiceError> {
        retrying(|| self.try_bootstrap(secret)).await
    }

    async fn try_bootstrap(&self, secret: &PlainSecret) -> Result<Live, ServiceError> {
        let namespace = NamespaceName::default_one();
        if let Some(done) = self.records.get::<Done>(&key(), Freshness::Linearizable).await? {
            let text = format!("Permission denied: ACL bootstrap no longer allowed (reset index: {})", done.modified.0);
            return Err(ServiceError::Forbidden(text));
        }
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
        let changes = Changes::default().absent(&key()).put(key(), &Done { accessor })?;
        self.make_token(&home, new, changes).await
    }
}
