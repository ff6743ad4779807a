//! Sealing keys that the store's key record names at present.

use std::sync::Arc;

use keyward_telemetry::error_chain::format_chain;

use super::acl_service::AclService;
use super::error::ServiceError;
use super::rejection::Unavailable;
use super::seal::{self, SealKey, SealKeyError, SealKeys};
use super::transaction::Transaction;
use crate::model::token::TokenRecord;
use crate::store::{Freshness, Record, StoreError};

impl AclService {
    /// Reads the key record and returns the keys that it names. Fails if the key file lacks one.
    pub(super) async fn reload_keys(&self) -> Result<Arc<SealKeys>, ServiceError> {
        let record = self.key_record().await?;
        self.sealer.refresh(&record).await.map_err(|error| key_missing(&error))
    }

    /// Reads the record that names the active keys.
    pub(super) async fn key_record(&self) -> Result<Record, ServiceError> {
        let key = seal::key_record();
        let record = self.typed_store.store().get(&key, Freshness::Linearizable).await?;
        Ok(record.ok_or_else(|| StoreError::Unreadable { key: key.as_str().to_owned() })?)
    }

    /// Returns the key that a token's secret is sealed with. Fails if the key file lacks it.
    pub(super) async fn sealing_key(&self, token: &TokenRecord) -> Result<Arc<SealKey>, ServiceError> {
        let id = &token.immutable().sealed_secret.key_id;
        if let Some(key) = self.sealer.keys().file.find(id) {
            return Ok(Arc::clone(key));
        }
        let keys = self.reload_keys().await?;
        keys.file.find(id).cloned().ok_or_else(|| Unavailable::SealKey.into())
    }

    /// Encrypts a login by the auth method `method` that has begun, so that any server of this store can finish it.
    pub(super) async fn seal_login(&self, method: &str, plain: &[u8]) -> Result<String, ServiceError> {
        Ok(self.reload_keys().await?.current().seal_login(method, plain)?)
    }

    /// Decrypts the text of [`AclService::seal_login`]; `None` if it is of another method or store, or was altered.
    pub(super) async fn open_login(&self, method: &str, sealed: &str) -> Result<Option<Vec<u8>>, ServiceError> {
        let open = |keys: &SealKeys| keys.file.keys().find_map(|key| key.open_login(method, sealed).ok());
        match open(&self.sealer.keys()) {
            // Another server may have begun it with a key that this one has not read yet.
            None => Ok(open(&*self.reload_keys().await?)),
            opened => Ok(opened),
        }
    }
}

/// Adds the precondition that the key record is unchanged, so that all servers find what is written under these keys.
pub(super) fn require_same_keys(keys: &SealKeys, transaction: Transaction) -> Transaction {
    transaction.require_unchanged(&seal::key_record(), keys.at)
}

fn key_missing(error: &SealKeyError) -> ServiceError {
    tracing::error!(
        event = "acl.key.missing",
        error = format_chain(error),
        "the key file lacks a key that the store names"
    );
    Unavailable::SealKey.into()
}
