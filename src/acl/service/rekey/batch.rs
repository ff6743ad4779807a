//! Batches of a rekey: tokens that are re-encrypted together.

use crate::model::token::TokenRecord;
use crate::service::error::ServiceError;
use crate::service::record_keys::TokenIndexEntry;
use crate::service::seal::{SealError, SealKeys};
use crate::service::sealing_keys::require_same_keys;
use crate::service::tokens::TokenKeys;
use crate::service::transaction::Transaction;
use crate::service::typed_store::Stored;
use crate::store::{Key, Revision};

/// Tokens that are re-encrypted in one transaction.
pub(super) struct RekeyBatch {
    pub(super) tokens: Vec<Key>,
    pub(super) transaction: Transaction,
    pub(super) bytes: usize,
}

impl RekeyBatch {
    pub(super) fn new(keys: &SealKeys) -> Self {
        Self { tokens: Vec::new(), transaction: require_same_keys(keys, Transaction::default()), bytes: 0 }
    }
}

/// Re-encryption of one token with the active key.
pub(super) struct Reencryption {
    key: Key,
    at: Revision,
    before: TokenKeys,
    token: TokenRecord,
    after: TokenKeys,
}

impl Reencryption {
    pub(super) fn new(keys: &SealKeys, key: &Key, token: &Stored<TokenRecord>) -> Result<Self, ServiceError> {
        let immutable = token.value.immutable();
        let old = keys.file.find(&immutable.sealed_secret.key_id).ok_or(SealError)?;
        let secret = old.unseal(immutable.accessor_id, &immutable.sealed_secret)?;
        if old.hash(&secret) != immutable.secret_hash {
            return Err(SealError.into());
        }
        let before = TokenKeys::new(old, &token.value);
        let new = keys.current();
        let sealed = new.seal(immutable.accessor_id, &secret)?;
        let resealed = TokenRecord::clone(&token.value).with_secret(new.hash(&secret), sealed);
        let after = TokenKeys::new(new, &resealed);
        Ok(Self { key: key.clone(), at: token.modified, before, token: resealed, after })
    }

    /// Adds the writes, with the precondition that the token is unchanged.
    pub(super) fn add_to(self, transaction: Transaction) -> Result<Transaction, ServiceError> {
        let fields = self.token.immutable();
        let entry =
            |secret| TokenIndexEntry { namespace: fields.namespace.clone(), accessor: fields.accessor_id, secret };
        transaction
            .require_unchanged(&self.key, self.at)
            .delete(self.before.by_secret)
            .delete(self.before.by_accessor)
            .put(self.after.by_secret, &entry(true))?
            .put(self.after.by_accessor, &entry(false))?
            .put(self.key, &self.token)
    }
}
