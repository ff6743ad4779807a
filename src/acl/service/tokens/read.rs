//! Tokens as those see them who may.

use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::{PlainSecret, REDACTED};
use crate::acl::model::token::TokenRecord;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::caller::{Caller, Privilege};
use crate::acl::service::error::ServiceError;
use crate::acl::service::repository::Stored;
use crate::acl::store::Freshness;

impl Directory {
    /// The token with that accessor; `None` if there is none, or its end has come.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn token(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<TokenRecord>>, ServiceError> {
        caller.require(Privilege::AclRead, namespace)?;
        self.existing(namespace, freshness).await?;
        self.standing(namespace, accessor, freshness).await
    }

    /// The token with that accessor, unless its end has come or the auth method that made it is gone: then it is as good as
    /// destroyed.
    pub(super) async fn standing(
        &self,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<TokenRecord>>, ServiceError> {
        let Some(live) = self.unexpired(namespace, accessor, freshness).await? else { return Ok(None) };
        let stands = self.method_stands(&live.token.value, freshness).await?;
        Ok(Some(live.token).filter(|_| stands))
    }

    /// The secret of a token. It opens whatever the token may: only who has `acl:write` where the token lives is told.
    ///
    /// # Errors
    /// It is damaged, or under a key that this server lacks.
    pub async fn secret(&self, token: &TokenRecord) -> Result<PlainSecret, ServiceError> {
        let birth = token.birth();
        Ok(self.key_of(token).await?.unseal(birth.accessor_id, &birth.sealed_secret)?)
    }

    /// The secret of a token as it is shown to a caller: hidden from those without `acl:write` where the token lives.
    ///
    /// # Errors
    /// It is damaged, or under a key that this server lacks.
    pub async fn secret_for(&self, caller: &Caller, token: &TokenRecord) -> Result<PlainSecret, ServiceError> {
        if caller.has(Privilege::AclWrite, &token.birth().namespace) {
            self.secret(token).await
        } else {
            Ok(PlainSecret::presented(REDACTED))
        }
    }
}
