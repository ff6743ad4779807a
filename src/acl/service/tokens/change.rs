//! Update and deletion of tokens.

use super::create::Tokens;
use super::draft::TokenDraft;
use super::token_records::require_deletable;
use crate::model::go_duration::GoDuration;
use crate::model::id::Id;
use crate::model::links::LinkOwner;
use crate::model::names::NamespaceName;
use crate::model::secret::REDACTED;
use crate::model::token::TokenRecord;
use crate::service::caller::{Caller, Privilege};
use crate::service::error::ServiceError;
use crate::service::links::LinkKind;
use crate::service::namespaced_records::is_unreadable;
use crate::service::record_keys;
use crate::service::rejection::{InvalidRequest, NotFound};
use crate::service::transaction::{Transaction, retry_on_conflict};
use crate::service::typed_store::Stored;
use crate::store::Freshness;

impl Tokens<'_> {
    /// Replaces the mutable fields of a token; fields missing in the draft are cleared. A draft with different
    /// immutable fields is rejected. Needs `acl:write`.
    pub(crate) async fn update(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        accessor: Id,
        draft: &TokenDraft,
    ) -> Result<Stored<TokenRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_update(namespace, accessor, draft)).await
    }

    async fn try_update(
        self,
        namespace: &NamespaceName,
        accessor: Id,
        draft: &TokenDraft,
    ) -> Result<Stored<TokenRecord>, ServiceError> {
        let target = self.service.records.writable_namespace(namespace).await?;
        let Some(previous) = self.find(namespace, accessor, Freshness::Linearizable).await? else {
            return Err(NotFound::Token(accessor).into());
        };
        self.require_same_immutable(&previous.value, draft).await?;
        let mut token = TokenRecord::clone(&previous.value);
        token.description.clone_from(&draft.description);
        token.links =
            self.service.links().validate(namespace, &draft.links, LinkOwner::Token { local: draft.local }).await?;
        token.roles = self.service.links().resolve(namespace, LinkKind::Role, &draft.roles).await?;
        let key = record_keys::token(namespace, accessor);
        let transaction = Transaction::default().require_unchanged(&key, previous.modified).put(key, &token)?;
        self.service.records.commit_update(&target, transaction, &previous, token).await
    }

    /// Rejects a draft that differs in immutable fields. Missing fields are unchanged, except that a missing `local`
    /// means false.
    async fn require_same_immutable(self, token: &TokenRecord, draft: &TokenDraft) -> Result<(), ServiceError> {
        let immutable = token.immutable();
        let accessor = immutable.accessor_id;
        // A client that may not see the secret writes the placeholder back.
        let stated = draft.secret.as_ref().filter(|secret| !["", REDACTED].contains(&secret.reveal()));
        if let Some(secret) = stated
            && self.service.sealing_key(token).await?.hash(secret) != immutable.secret_hash
        {
            return Err(InvalidRequest::SecretChanged.into());
        }
        if draft.local != immutable.local {
            return Err(InvalidRequest::LocalChanged(accessor).into());
        }
        let method = draft.auth_method.as_deref().filter(|method| !method.is_empty());
        if method.is_some_and(|method| token.auth_method() != Some(method)) {
            return Err(InvalidRequest::TokenMethodChanged(accessor).into());
        }
        let end = draft.expiration_time;
        if end.is_some_and(|end| immutable.expiration_time != Some(end)) || draft.expiration_ttl != GoDuration(0) {
            return Err(InvalidRequest::ExpirationChanged(accessor).into());
        }
        Ok(())
    }

    /// Deletes a token, also if it is unreadable; returns false if it does not exist. Its secret is invalid from then
    /// on. Needs `acl:write`. The caller's own token and the anonymous one cannot be deleted.
    pub(crate) async fn delete(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        accessor: Id,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        require_deletable(accessor)?;
        // Consul's rule; a token of a login ends itself by a logout.
        if caller.accessor() == Some(accessor) {
            return Err(InvalidRequest::OwnToken.into());
        }
        retry_on_conflict(|| self.try_delete(namespace, accessor)).await
    }

    async fn try_delete(self, namespace: &NamespaceName, accessor: Id) -> Result<bool, ServiceError> {
        let key = record_keys::token(namespace, accessor);
        let found = self.service.typed_store.get::<TokenRecord>(&key, Freshness::Linearizable).await;
        if found.as_ref().is_err_and(is_unreadable) {
            // Also in a namespace that is marked for deletion: its removal waits for this.
            self.service.token_records().delete_unreadable(&key).await?;
            return Ok(true);
        }
        let target = self.service.records.writable_namespace(namespace).await?;
        let Some(previous) = found? else { return Ok(false) };
        let transaction =
            self.service.token_records().delete(&previous, target.require_unchanged(Transaction::default())).await?;
        self.service.typed_store.commit(transaction).await?;
        Ok(true)
    }
}
