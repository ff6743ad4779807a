//! Reads of tokens.

use std::borrow::Cow;

use super::create::Tokens;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::REDACTED;
use crate::model::token::TokenRecord;
use crate::service::caller::{Caller, Privilege};
use crate::service::error::ServiceError;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

impl Tokens<'_> {
    /// Returns the token; `None` if it does not exist or has expired. Needs `acl:read`.
    pub(crate) async fn get(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<TokenRecord>>, ServiceError> {
        caller.require(Privilege::AclRead, namespace)?;
        self.service.records.require_namespace(namespace, freshness).await?;
        self.find(namespace, accessor, freshness).await
    }

    /// Returns the token unless it has expired or its auth method was deleted.
    pub(super) async fn find(
        self,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<TokenRecord>>, ServiceError> {
        let Some(live) = self.service.authenticator().unexpired_token(namespace, accessor, freshness).await? else {
            return Ok(None);
        };
        let stands = self.service.authenticator().auth_method_exists(&live.token.value, freshness).await?;
        Ok(Some(live.token).filter(|_| stands))
    }

    /// Decrypts the secret of a token for a response. Callers must have `acl:write` in the token's namespace.
    pub(crate) async fn unseal_secret(self, token: &TokenRecord) -> Result<String, ServiceError> {
        let immutable = token.immutable();
        Ok(self.service.sealing_key(token).await?.unseal_text(immutable.accessor_id, &immutable.sealed_secret)?)
    }

    /// Returns the secret of a token, or [`REDACTED`] if the caller lacks `acl:write` in its namespace.
    pub(crate) async fn visible_secret(
        self,
        caller: &Caller,
        token: &TokenRecord,
    ) -> Result<Cow<'static, str>, ServiceError> {
        if caller.has(Privilege::AclWrite, &token.immutable().namespace) {
            Ok(self.unseal_secret(token).await?.into())
        } else {
            Ok(REDACTED.into())
        }
    }
}
