//! The server's keys, as the store names them now.

use std::sync::Arc;

use super::acl_service::Directory;
use super::error::ServiceError;
use super::repository::Changes;
use super::seal::{self, KeyError, Keys, SealKey};
use crate::acl::model::token::TokenRecord;
use crate::acl::store::{Freshness, Record, StoreError};
use crate::error_chain::format_chain;

impl Directory {
    /// The keys, as the store names them at this moment.
    ///
    /// # Errors
    /// The store names one that this server lacks; the store failed.
    pub(super) async fn keys_now(&self) -> Result<Arc<Keys>, ServiceError> {
        let told = self.key_record().await?;
        self.sealer.learn(&told).await.map_err(|error| lacking(&error))
    }

    /// What the store says of the keys.
    pub(super) async fn key_record(&self) -> Result<Record, ServiceError> {
        let key = seal::record();
        let found = self.records.store().get(&key, Freshness::Linearizable).await?;
        Ok(found.ok_or_else(|| StoreError::Unreadable { key: key.as_str().to_owned() })?)
    }

    /// The key that a token's secret is under.
    ///
    /// # Errors
    /// This server lacks it; the store failed.
    pub(super) async fn key_of(&self, token: &TokenRecord) -> Result<Arc<SealKey>, ServiceError> {
        let id = &token.birth().sealed_secret.key_id;
        if let Some(key) = self.sealer.keys().file.find(id) {
            return Ok(Arc::clone(key));
        }
        let keys = self.keys_now().await?;
        keys.file.find(id).cloned().ok_or_else(|| ServiceError::NotNow(LACKING.to_owned()))
    }
}

/// Lets the changes happen only while the store names the same keys: what is written under one is found by all servers.
pub(super) fn held(keys: &Keys, changes: Changes) -> Changes {
    changes.unchanged(&seal::record(), keys.at)
}

const LACKING: &str = "this server's key file lacks a key that the store's tokens are under";

fn lacking(error: &KeyError) -> ServiceError {
    tracing::error!(event = "acl.key.missing", error = format_chain(error), "a key that the store names is not there");
    ServiceError::NotNow(LACKING.to_owned())
}
