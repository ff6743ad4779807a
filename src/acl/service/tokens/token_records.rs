//! Creation and deletion of the records of a token.

use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::secret::PlainSecret;
use crate::model::timestamp::Timestamp;
use crate::model::token::{ANONYMOUS, ImmutableFields, LoginOrigin, TokenRecord};
use crate::service::acl_service::AclService;
use crate::service::builtin::accessor_as_secret;
use crate::service::caller::LiveToken;
use crate::service::error::ServiceError;
use crate::service::namespaced_records::WritableNamespace;
use crate::service::record_keys::{self, TokenIndexEntry};
use crate::service::rejection::InvalidRequest;
use crate::service::seal::{SealKey, SealKeys};
use crate::service::sealing_keys::require_same_keys;
use crate::service::transaction::{Transaction, retry_on_conflict};
use crate::service::typed_store::{Stored, decode};
use crate::store::{CommitError, Freshness, Key, Record};

/// Validated fields of a new token.
#[derive(Debug)]
pub(crate) struct ValidatedToken {
    /// Accessor.
    pub accessor: Id,
    /// Secret.
    pub secret: PlainSecret,
    /// Description.
    pub description: String,
    /// Links.
    pub links: Links,
    /// Roles.
    pub roles: Vec<Id>,
    /// Valid in this datacenter only.
    pub local: bool,
    /// Creation time.
    pub create_time: Timestamp,
    /// Expiration time; `None` for no expiration.
    pub expiration_time: Option<Timestamp>,
    /// Login that creates it.
    pub login: Option<LoginOrigin>,
}

/// Creation and deletion of all records of a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRecords<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the operations on all records of a token.
    pub(crate) fn token_records(&self) -> TokenRecords<'_> {
        TokenRecords { service: self }
    }
}

impl TokenRecords<'_> {
    /// Creates a token, together with the preconditions and writes of `transaction`. It is durable on return. Fails if
    /// the accessor or the secret is that of any token.
    pub(crate) async fn insert(
        self,
        target: &WritableNamespace,
        new: ValidatedToken,
        transaction: Transaction,
    ) -> Result<LiveToken, ServiceError> {
        loop {
            let keys = self.service.sealer.keys();
            let outcome = self.try_insert(&keys, target, &new, transaction.clone()).await;
            // Retry if the conflict is a concurrent key rotation.
            let is_conflict = matches!(outcome, Err(ServiceError::Commit(CommitError::Conflict(_))));
            if !is_conflict || self.service.reload_keys().await?.at == keys.at {
                return outcome;
            }
        }
    }

    async fn try_insert(
        self,
        keys: &SealKeys,
        target: &WritableNamespace,
        new: &ValidatedToken,
        transaction: Transaction,
    ) -> Result<LiveToken, ServiceError> {
        let key = keys.current();
        let immutable = ImmutableFields {
            accessor_id: new.accessor,
            secret_hash: key.hash(&new.secret),
            sealed_secret: key.seal(new.accessor, &new.secret)?,
            namespace: target.name.clone(),
            local: new.local,
            create_time: new.create_time,
            expiration_time: new.expiration_time,
            login: new.login.clone(),
        };
        let token = TokenRecord::new(immutable, new.description.clone(), new.links.clone(), new.roles.clone());
        let token_keys = TokenKeys::new(key, &token);
        let index_entry = |secret| TokenIndexEntry {
            namespace: target.name.clone(),
            accessor: token.immutable().accessor_id,
            secret,
        };
        let mut transaction = require_same_keys(keys, target.require_unchanged(transaction));
        // Both ids must be unused under every active key.
        for id in [&new.secret, &accessor_as_secret(new.accessor)] {
            transaction = keys
                .hashes(id)
                .iter()
                .fold(transaction, |transaction, hash| transaction.require_absent(&record_keys::token_id(hash)));
        }
        transaction = transaction
            .put(token_keys.token, &token)?
            .put(token_keys.by_secret, &index_entry(true))?
            .put(token_keys.by_accessor, &index_entry(false))?;
        for key in token_keys.end.into_iter().chain(token_keys.login) {
            transaction = transaction.put(key, &target.name)?;
        }
        let revision = self.service.typed_store.commit(transaction).await?;
        let read_at = token.immutable().create_time;
        Ok(LiveToken { token: Stored { value: token.into(), created: revision, modified: revision }, read_at })
    }

    /// Deletes a token; a missing one is not an error. Refuses the anonymous token, whose secret anyone can present.
    pub(crate) async fn destroy(self, token: &TokenRecord) -> Result<(), ServiceError> {
        require_deletable(token.immutable().accessor_id)?;
        retry_on_conflict(|| self.try_destroy(token.immutable())).await
    }

    async fn try_destroy(self, immutable: &ImmutableFields) -> Result<(), ServiceError> {
        let key = record_keys::token(&immutable.namespace, immutable.accessor_id);
        let token = self.service.typed_store.get::<TokenRecord>(&key, Freshness::Linearizable).await?;
        // A newer token with the same accessor is another one.
        if let Some(token) = token.filter(|token| token.value.immutable().create_time == immutable.create_time) {
            self.service.typed_store.commit(self.delete(&token, Transaction::default()).await?).await?;
        }
        Ok(())
    }

    /// Adds the deletion of a token's records, at most [`MAX_TOKEN_RECORDS`], with the precondition that it is
    /// unchanged: after a key rotation its index entry has another key and would remain.
    pub(crate) async fn delete(
        self,
        token: &Stored<TokenRecord>,
        transaction: Transaction,
    ) -> Result<Transaction, ServiceError> {
        let token_keys = TokenKeys::new(&*self.service.sealing_key(&token.value).await?, &token.value);
        let transaction = transaction.require_unchanged(&token_keys.token, token.modified);
        let keys = [token_keys.token, token_keys.by_secret, token_keys.by_accessor]
            .into_iter()
            .chain(token_keys.end)
            .chain(token_keys.login);
        Ok(keys.fold(transaction, Transaction::delete))
    }

    /// Deletes a token whose record is unreadable, with its index entries. Only the record has the hash of the secret and
    /// the times in their keys, so they are searched: by an entry that remained, the old secret would authenticate as a
    /// later token with the same accessor. Fails with a conflict if the record was replaced or deleted
    /// meanwhile.
    pub(super) async fn delete_unreadable(self, key: &Key) -> Result<(), ServiceError> {
        let records = &self.service.records;
        let modified = records.unreadable_revision::<TokenRecord>(key).await?;
        let is_of_token = |entry: &Key, record: &Record| {
            decode::<TokenIndexEntry>(entry, record)
                .is_ok_and(|entry| record_keys::token(&entry.value.namespace, entry.value.accessor) == *key)
        };
        // An accessor is unique in all namespaces.
        let has_accessor = |entry: &Key, _: &Record| entry.last_segment() == key.last_segment();
        let mut found = records.find_keys("token-id/", is_of_token).await?;
        for prefix in ["token-end/", "token-login/"] {
            found.extend(records.find_keys(prefix, has_accessor).await?);
        }
        let transaction = Transaction::default().require_unchanged(key, modified).delete(key.clone());
        self.service.typed_store.commit(found.into_iter().fold(transaction, Transaction::delete)).await?;
        Ok(())
    }
}

/// Refuses to delete the anonymous token: requests without a token need it.
pub(super) fn require_deletable(accessor: Id) -> Result<(), InvalidRequest> {
    if accessor == ANONYMOUS { Err(InvalidRequest::AnonymousToken) } else { Ok(()) }
}

/// Most records of one token.
pub(crate) const MAX_TOKEN_RECORDS: usize = 5;

/// Store keys of one token's records.
pub(crate) struct TokenKeys {
    pub token: Key,
    pub by_secret: Key,
    pub by_accessor: Key,
    end: Option<Key>,
    login: Option<Key>,
}

impl TokenKeys {
    /// Returns the keys of a token whose secret is sealed with `key`.
    pub(crate) fn new(key: &SealKey, token: &TokenRecord) -> Self {
        let immutable = token.immutable();
        let accessor = immutable.accessor_id;
        Self {
            token: record_keys::token(&immutable.namespace, accessor),
            by_secret: record_keys::token_id(&immutable.secret_hash),
            by_accessor: record_keys::token_id(&key.hash(&accessor_as_secret(accessor))),
            end: immutable.expiration_time.map(|end| record_keys::token_end(end, accessor)),
            login: immutable
                .login
                .as_ref()
                .and_then(|login| login.method_id)
                .map(|method| record_keys::token_login(method, accessor)),
        }
    }
}
