//! Tokens are made anew, or as another one is.

use super::draft::{TokenDraft, within_bounds};
use super::write::NewToken;
use crate::acl::model::id::Id;
use crate::acl::model::links::Holder;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::PlainSecret;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::builtin::accessor_text;
use crate::acl::service::caller::{Caller, Live, Privilege};
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys::{self, Whereabouts};
use crate::acl::service::links::Linked;
use crate::acl::service::repository::{Changes, retrying};
use crate::acl::store::Freshness;

/// A token that was made.
#[derive(Debug)]
pub struct Made {
    /// The token.
    pub live: Live,
    /// Its secret.
    pub secret: PlainSecret,
}

impl Directory {
    /// Makes a token.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, the draft cannot be a token, or an id is taken.
    pub async fn create_token(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &TokenDraft,
    ) -> Result<Made, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_create_token(namespace, draft)).await
    }

    async fn try_create_token(&self, namespace: &NamespaceName, draft: &TokenDraft) -> Result<Made, ServiceError> {
        let home = self.home(namespace).await?;
        let accessor = self.id_of("AccessorID", draft.accessor.as_deref()).await?;
        let secret = self.id_of("SecretID", draft.secret.as_ref().map(PlainSecret::reveal)).await?;
        // One id cannot find both a token and the token that it opens.
        if accessor == secret {
            return Err(taken("SecretID"));
        }
        if draft.auth_method.as_ref().is_some_and(|method| !method.is_empty()) {
            return Err(ServiceError::Invalid("AuthMethod field is disallowed outside of login".to_owned()));
        }
        let create_time = self.now();
        let secret = PlainSecret::presented(&secret.to_string());
        let new = NewToken {
            accessor,
            secret: secret.clone(),
            description: draft.description.clone(),
            expiration_time: draft.end(create_time)?,
            links: self.links(namespace, &draft.links, Holder::Token { local: draft.local }).await?,
            roles: self.linked(namespace, Linked::Role, &draft.roles).await?,
            local: draft.local,
            create_time,
            login: None,
        };
        let live = self.make_token(&home, new, Changes::default()).await?;
        Ok(Made { live, secret })
    }

    /// The id that was given, if it may be a new token's `field`, or a new one.
    async fn id_of(&self, field: &str, given: Option<&str>) -> Result<Id, ServiceError> {
        let Some(given) = given.filter(|given| !given.is_empty()) else { return Ok(Id::random()) };
        let invalid = |text: &str| ServiceError::Invalid(format!("Invalid Token: {field} - {text}"));
        let id: Id = given.parse().map_err(|_| invalid("not a valid UUID"))?;
        if id.is_reserved() {
            return Err(invalid("UUIDs with the prefix \"00000000-0000-0000-0000-0000000000\" are reserved"));
        }
        for hash in self.sealer.keys().hashes(&accessor_text(id)) {
            let found = self.records.get::<Whereabouts>(&keys::token_id(&hash), Freshness::Linearizable).await?;
            if found.is_some() {
                return Err(taken(field));
            }
        }
        Ok(id)
    }

    /// Makes a token with new ids that may what another one may, is local as it is, and ends when it does. Its description
    /// is the other's, unless one is given.
    ///
    /// # Errors
    /// The caller lacks `acl:write`; there is no such token; a login made it; it ends too soon.
    pub async fn clone_token(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        source: Id,
        description: &str,
    ) -> Result<Made, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_clone_token(namespace, source, description)).await
    }

    async fn try_clone_token(
        &self,
        namespace: &NamespaceName,
        source: Id,
        description: &str,
    ) -> Result<Made, ServiceError> {
        let home = self.home(namespace).await?;
        let Some(source) = self.standing(namespace, source, Freshness::Linearizable).await? else {
            return Err(ServiceError::Missing("Requested token does not exist: ACL not found".to_owned()));
        };
        let (token, birth) = (&source.value, source.value.birth());
        if birth.login.is_some() {
            return Err(ServiceError::Invalid("Cannot clone a token created from an auth method".to_owned()));
        }
        let create_time = self.now();
        if let Some(end) = birth.expiration_time {
            within_bounds(create_time, end)?;
        }
        let secret = PlainSecret::random();
        let new = NewToken {
            accessor: Id::random(),
            secret: secret.clone(),
            description: if description.is_empty() { token.description.clone() } else { description.to_owned() },
            links: token.links.clone(),
            roles: token.roles.clone(),
            local: birth.local,
            create_time,
            expiration_time: birth.expiration_time,
            login: None,
        };
        let live = self.make_token(&home, new, Changes::default()).await?;
        Ok(Made { live, secret })
    }
}

fn taken(field: &str) -> ServiceError {
    ServiceError::Taken(format!("Invalid Token: {field} is already in use"))
}
