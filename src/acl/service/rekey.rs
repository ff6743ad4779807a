//! Rotation of the key that token secrets are hashed and sealed with, while the server runs.
//!
//! First the store's key record names the new key, and all new tokens use it. Then each token is re-encrypted in a
//! transaction that checks that the token and the key record are unchanged, so concurrent changes win and the token is
//! read again. At the end the key record names only the new key. An interrupted rotation is continued by the next call
//! on any server.

mod batch;

use std::sync::Arc;

use futures_util::future::join_all;
use keyward_telemetry::error_chain::format_chain;

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::rejection::{InvalidRequest, Unavailable};
use super::seal::{self, Keyring, RekeyProgress, SealKeys};
use super::sealing_keys::require_same_keys;
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::{PAGE, decode};
use crate::model::names::NamespaceName;
use crate::model::token::TokenRecord;
use crate::store::{Batch, CommitError, Freshness, Key, Page, Record};
use batch::{Reencryption, RekeyBatch};

/// Result of a rekey call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RekeyResult {
    /// Id of the key that new tokens use.
    pub key_id: String,
    /// Tokens that this call re-encrypted.
    pub rewritten: usize,
    /// True if all tokens use it, so that the key file's other lines may be removed.
    pub done: bool,
    /// Store keys of tokens that cannot be re-encrypted because they are unreadable.
    pub unreadable: Vec<String>,
    /// True if anything was written.
    pub changed: bool,
}

/// Tokens in one transaction: five writes each.
const TOKENS_PER_BATCH: usize = Batch::MAX_OPERATIONS / 5;

/// Bytes of values in one transaction: half of the limit, leaving room for keys and small records.
const BATCH_BYTES: usize = Batch::MAX_BYTES / 2;

/// Most unreadable tokens in a result.
const MAX_REPORTED: usize = 20;

/// Rotation of the key that token secrets are sealed with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyRotation<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the rotation of the sealing key.
    pub(crate) fn key_rotation(&self) -> KeyRotation<'_> {
        KeyRotation { service: self }
    }
}

impl KeyRotation<'_> {
    /// Re-encrypts up to `pages` pages of tokens with the first key of the key file, which is read again. With
    /// `generate` a new key is created and prepended to the file first, unless an earlier call failed after it had done
    /// so. Needs `operator:write` in `default`. After an error, tokens re-encrypted so far stay so.
    pub(crate) async fn run(self, caller: &Caller, generate: bool, pages: usize) -> Result<RekeyResult, ServiceError> {
        caller.require(Privilege::OperatorWrite, &NamespaceName::default_namespace())?;
        let Ok(mut progress) = self.service.sealer.rekey_progress.try_lock() else { return Err(concurrent_rekey()) };
        let (keys, changed) = self.activate_first_key(generate, &mut progress.generated).await?;
        let rekeyed = if keys.is_rotating() {
            self.reencrypt_pages(&keys, &mut progress, pages, changed).await.map_err(unfinished)?
        } else {
            result(&keys, 0, Vec::new(), changed)
        };
        progress.generated = None;
        Ok(rekeyed)
    }

    /// Re-encrypts up to `pages` pages of tokens after those of earlier calls. After the last one, the key record names
    /// only the new key. `changed` is true if the call has changed something before.
    async fn reencrypt_pages(
        self,
        keys: &SealKeys,
        progress: &mut RekeyProgress,
        pages: usize,
        mut changed: bool,
    ) -> Result<RekeyResult, ServiceError> {
        // The key record has changed: the key of the tokens that were passed may be an old one now.
        if progress.at != keys.at {
            let generated = progress.generated.take();
            *progress = RekeyProgress { at: keys.at, generated, ..RekeyProgress::default() };
        }
        let mut rewritten = 0;
        let mut reached_end = false;
        for _ in 0..pages {
            let page = Page { after: progress.after.clone(), limit: PAGE };
            let listing = self.service.typed_store.store().list("token/", page, Freshness::Linearizable).await?;
            let mut unreadable = Vec::new();
            rewritten += self.reencrypt_page(keys, &listing.entries, &mut unreadable).await?;
            progress.unreadable.extend(unreadable);
            progress.after = listing.entries.last().map(|(key, _)| key.clone());
            if !listing.more {
                reached_end = true;
                break;
            }
        }
        changed |= rewritten > 0;
        if !reached_end {
            return Ok(RekeyResult { done: false, ..result(keys, rewritten, Vec::new(), changed) });
        }
        progress.after = None;
        let unreadable = std::mem::take(&mut progress.unreadable);
        if unreadable.is_empty() {
            self.store_active_keys(keys, &keys.active.first_only()).await?;
            changed = true;
        }
        Ok(result(keys, rewritten, unreadable, changed))
    }

    /// Makes the key file's first key the active one. `generated` is the id of a key that an earlier call generated
    /// before it failed: while it is the first one, no other is generated.
    async fn activate_first_key(
        self,
        generate: bool,
        generated: &mut Option<String>,
    ) -> Result<(Arc<SealKeys>, bool), ServiceError> {
        // Other servers would not have a key that is generated here.
        if generate && self.service.typed_store.store().last("").is_none() {
            return Err(InvalidRequest::SharedStore.into());
        }
        let record = self.service.key_record().await?;
        let mut keys = self.load_key_file(&record, false).await?;
        if generate && generated.as_deref() != Some(keys.file.first.id()) {
            keys = self.load_key_file(&record, true).await?;
            *generated = Some(keys.file.first.id().to_owned());
        }
        if keys.file.first.id() == keys.current().id() {
            return Ok((keys, false));
        }
        let activated = self.store_active_keys(&keys, &keys.with_file_key_first()).await;
        activated.map_err(|error| if generated.is_some() { unfinished(error) } else { error })?;
        Ok((self.service.reload_keys().await.map_err(unfinished)?, true))
    }

    /// Reads the key file again; with `generate` a new key is prepended first.
    async fn load_key_file(self, record: &Record, generate: bool) -> Result<Arc<SealKeys>, ServiceError> {
        self.service.sealer.reload_file(record, generate).await.map_err(|error| {
            let advice = if generate {
                "; add the new key as the first line of every key file by hand instead of using Generate"
            } else {
                ""
            };
            InvalidRequest::KeyFile(format!("{}{advice}", format_chain(&error))).into()
        })
    }

    /// Writes the key record, unless another server wrote a different one.
    async fn store_active_keys(self, keys: &SealKeys, target: &Keyring) -> Result<(), ServiceError> {
        let transaction = require_same_keys(keys, Transaction::default()).write(seal::put_key_record(target));
        let outcome = self.service.typed_store.commit(transaction).await;
        let now = self.service.reload_keys().await?;
        let is_active =
            now.current().id() == target.first.id() && (now.active.ids() == target.ids() || !now.is_rotating());
        match outcome {
            // Another server may have made the same change first.
            Err(ServiceError::Commit(CommitError::Conflict(_))) if is_active => Ok(()),
            Err(ServiceError::Commit(CommitError::Conflict(_))) => Err(concurrent_rekey()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Re-encrypts the tokens of a page that use another key; returns their number.
    async fn reencrypt_page(
        self,
        keys: &SealKeys,
        entries: &[(Key, Record)],
        unreadable: &mut Vec<Key>,
    ) -> Result<usize, ServiceError> {
        let mut batches: Vec<RekeyBatch> = Vec::new();
        for (key, record) in entries {
            let reencryption = match decode::<TokenRecord>(key, record) {
                Ok(token) if token.value.immutable().sealed_secret.key_id == keys.current().id() => continue,
                Ok(token) => Reencryption::new(keys, key, &token),
                Err(error) => Err(error),
            };
            let Ok(reencryption) = reencryption else {
                unreadable.push(key.clone());
                continue;
            };
            let bytes = record.value.len();
            let fits = |batch: &RekeyBatch| batch.tokens.len() < TOKENS_PER_BATCH && batch.bytes + bytes <= BATCH_BYTES;
            let mut batch = batches.pop_if(|batch| fits(batch)).unwrap_or_else(|| RekeyBatch::new(keys));
            batch.transaction = reencryption.add_to(batch.transaction)?;
            batch.tokens.push(key.clone());
            batch.bytes += bytes;
            batches.push(batch);
        }
        // Concurrently, so that the store can group them into one disk sync.
        let commits = batches.into_iter().map(|batch| self.commit_batch(keys, batch));
        join_all(commits).await.into_iter().sum()
    }

    async fn commit_batch(self, keys: &SealKeys, batch: RekeyBatch) -> Result<usize, ServiceError> {
        match self.service.typed_store.commit(batch.transaction).await {
            Ok(_) => Ok(batch.tokens.len()),
            // One of them was changed or deleted meanwhile: retry each separately.
            Err(ServiceError::Commit(CommitError::Conflict(_))) => {
                let mut rewritten = 0;
                for key in &batch.tokens {
                    rewritten += retry_on_conflict(|| self.reencrypt_token(keys, key)).await?;
                }
                Ok(rewritten)
            }
            Err(error) => Err(error),
        }
    }

    async fn reencrypt_token(self, keys: &SealKeys, key: &Key) -> Result<usize, ServiceError> {
        let Some(token) = self.service.typed_store.get::<TokenRecord>(key, Freshness::Linearizable).await? else {
            return Ok(0);
        };
        if token.value.immutable().sealed_secret.key_id == keys.current().id() {
            return Ok(0);
        }
        let transaction =
            Reencryption::new(keys, key, &token)?.add_to(require_same_keys(keys, Transaction::default()))?;
        match self.service.typed_store.commit(transaction).await {
            Ok(_) => Ok(1),
            // With the key record unchanged, a conflict is one of the token, which is read again.
            Err(error) if self.service.reload_keys().await?.at == keys.at => Err(error),
            Err(_) => Err(concurrent_rekey()),
        }
    }
}

fn result(keys: &SealKeys, rewritten: usize, unreadable: Vec<Key>, changed: bool) -> RekeyResult {
    let done = unreadable.is_empty();
    let unreadable = unreadable.into_iter().take(MAX_REPORTED).map(|key| key.as_str().to_owned()).collect();
    RekeyResult { key_id: keys.current().id().to_owned(), rewritten, done, unreadable, changed }
}

fn concurrent_rekey() -> ServiceError {
    Unavailable::Rekey.into()
}

/// Wraps a failure of the store after the key file or a token may have changed, as a full disk rejects only the current
/// batch.
fn unfinished(error: ServiceError) -> ServiceError {
    match error {
        ServiceError::Store(_) | ServiceError::Commit(_) => ServiceError::RekeyFailed(Box::new(error)),
        error => error,
    }
}

#[cfg(test)]
mod tests;
