//! Tokens are changed, and deleted.

use super::draft::TokenDraft;
use crate::acl::model::go_duration::GoDuration;
use crate::acl::model::id::Id;
use crate::acl::model::links::Holder;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::REDACTED;
use crate::acl::model::token::{ANONYMOUS, TokenRecord};
use crate::acl::service::acl_service::Directory;
use crate::acl::service::caller::{Caller, Privilege};
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::links::Linked;
use crate::acl::service::repository::{Changes, Stored, retrying};
use crate::acl::store::Freshness;

impl Directory {
    /// Replaces what may change in a token; what the draft leaves out is cleared. What a token is born with stays, and a
    /// draft that says otherwise is refused.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, there is no such token, or it cannot become what the draft says.
    pub async fn update_token(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        accessor: Id,
        draft: &TokenDraft,
    ) -> Result<Stored<TokenRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_update_token(namespace, accessor, draft)).await
    }

    async fn try_update_token(
        &self,
        namespace: &NamespaceName,
        accessor: Id,
        draft: &TokenDraft,
    ) -> Result<Stored<TokenRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        let Some(before) = self.standing(namespace, accessor, Freshness::Linearizable).await? else {
            return Err(ServiceError::Missing(format!("Cannot find token \"{accessor}\"")));
        };
        self.same_birth(&before.value, draft).await?;
        let mut token = TokenRecord::clone(&before.value);
        token.description.clone_from(&draft.description);
        token.links = self.links(namespace, &draft.links, Holder::Token { local: draft.local }).await?;
        token.roles = self.linked(namespace, Linked::Role, &draft.roles).await?;
        let key = keys::token(namespace, accessor);
        let changes = Changes::default().unchanged(&key, before.modified).put(key, &token)?;
        self.change(&home, changes, &before, token).await
    }

    /// Refuses a draft that would change what never changes. What it leaves out stays, but for `local`: left out it is
    /// false.
    async fn same_birth(&self, token: &TokenRecord, draft: &TokenDraft) -> Result<(), ServiceError> {
        let birth = token.birth();
        let accessor = birth.accessor_id;
        let refuse = |text: String| Err(ServiceError::Invalid(text));
        let stated = draft.secret.as_ref().filter(|secret| !["", REDACTED].contains(&secret.reveal()));
        if let Some(secret) = stated
            && self.key_of(token).await?.hash(secret) != birth.secret_hash
        {
            return refuse("Changing a token's SecretID is not permitted".to_owned());
        }
        if draft.local != birth.local {
            return refuse(format!("Cannot toggle local mode of {accessor}"));
        }
        let method = draft.auth_method.as_deref().filter(|method| !method.is_empty());
        if method.is_some_and(|method| token.auth_method() != Some(method)) {
            return refuse(format!("Cannot change AuthMethod of {accessor}"));
        }
        let end = draft.expiration_time;
        if end.is_some_and(|end| birth.expiration_time != Some(end)) || draft.expiration_ttl != GoDuration(0) {
            return refuse(format!("Cannot change expiration time of {accessor}"));
        }
        Ok(())
    }

    /// Deletes a token; false if there is none. From then on its secret opens nothing.
    ///
    /// # Errors
    /// The caller lacks `acl:write`; it is the caller's own token, or the anonymous one.
    pub async fn delete_token(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        accessor: Id,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        if accessor == ANONYMOUS {
            let text = "Delete operation not permitted on the anonymous token";
            return Err(ServiceError::Invalid(text.to_owned()));
        }
        if caller.accessor() == Some(accessor) {
            let text = "Deletion of the request's authorization token is not permitted";
            return Err(ServiceError::Invalid(text.to_owned()));
        }
        retrying(|| self.try_delete_token(namespace, accessor)).await
    }

    async fn try_delete_token(&self, namespace: &NamespaceName, accessor: Id) -> Result<bool, ServiceError> {
        let home = self.home(namespace).await?;
        let key = keys::token(namespace, accessor);
        let Some(before) = self.records.get::<TokenRecord>(&key, Freshness::Linearizable).await? else {
            return Ok(false);
        };
        let changes = self.without_token(&before, home.hold(Changes::default())).await?;
        self.records.commit(changes).await?;
        Ok(true)
    }
}
