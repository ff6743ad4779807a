//! Creation and cloning of tokens.

use super::draft::{TokenDraft, validate_end};
use super::token_records::ValidatedToken;
use crate::model::id::Id;
use crate::model::links::LinkOwner;
use crate::model::names::NamespaceName;
use crate::model::secret::PlainSecret;
use crate::service::acl_service::AclService;
use crate::service::builtin::accessor_as_secret;
use crate::service::caller::{Caller, LiveToken, Privilege};
use crate::service::error::ServiceError;
use crate::service::links::LinkKind;
use crate::service::record_keys::{self, TokenIndexEntry};
use crate::service::rejection::{Conflict, InvalidRequest, NotFound};
use crate::service::transaction::{Transaction, retry_on_conflict};
use crate::store::Freshness;

/// A created token.
#[derive(Debug)]
pub(crate) struct CreatedToken {
    /// Token.
    pub live: LiveToken,
    /// Secret of the token.
    pub secret: PlainSecret,
}

/// Operations on tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens<'a> {
    pub(super) service: &'a AclService,
}

impl AclService {
    /// Returns the operations on tokens.
    pub(crate) fn tokens(&self) -> Tokens<'_> {
        Tokens { service: self }
    }
}

impl Tokens<'_> {
    /// Creates a token. Needs `acl:write`.
    pub(crate) async fn create(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &TokenDraft,
    ) -> Result<CreatedToken, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_create(namespace, draft)).await
    }

    async fn try_create(self, namespace: &NamespaceName, draft: &TokenDraft) -> Result<CreatedToken, ServiceError> {
        let target = self.service.records.writable_namespace(namespace).await?;
        let accessor = self.new_id("AccessorID", draft.accessor.as_deref()).await?;
        let secret = self.new_id("SecretID", draft.secret.as_ref().map(PlainSecret::reveal)).await?;
        // One id cannot be both the accessor and the secret.
        if accessor == secret {
            return Err(id_taken("SecretID"));
        }
        if draft.auth_method.as_ref().is_some_and(|method| !method.is_empty()) {
            return Err(InvalidRequest::TokenMethod.into());
        }
        let create_time = self.service.now();
        let secret = PlainSecret::from_presented(&secret.to_string());
        let new = ValidatedToken {
            accessor,
            secret: secret.clone(),
            description: draft.description.clone(),
            expiration_time: draft.end(create_time)?,
            links: self
                .service
                .links()
                .validate(namespace, &draft.links, LinkOwner::Token { local: draft.local })
                .await?,
            roles: self.service.links().resolve(namespace, LinkKind::Role, &draft.roles).await?,
            local: draft.local,
            create_time,
            login: None,
        };
        let live = self.service.token_records().insert(&target, new, Transaction::default()).await?;
        Ok(CreatedToken { live, secret })
    }

    /// Returns the given id if it may be used for the `field` of a new token, or a random one.
    pub(crate) async fn new_id(self, field: &'static str, text: Option<&str>) -> Result<Id, ServiceError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Id::random()) };
        let id: Id = text.parse().map_err(|_| InvalidRequest::TokenId { field })?;
        if id.is_reserved() {
            return Err(InvalidRequest::ReservedId { field }.into());
        }
        // As in Consul, an id must differ from all accessors and from all secrets. Both are in one index.
        for hash in self.service.sealer.keys().hashes(&accessor_as_secret(id)) {
            let existing = self
                .service
                .typed_store
                .get::<TokenIndexEntry>(&record_keys::token_id(&hash), Freshness::Linearizable)
                .await?;
            if existing.is_some() {
                return Err(id_taken(field));
            }
        }
        Ok(id)
    }

    /// Creates a token with new ids and the links, locality and expiration of another one. An empty description copies
    /// the other's. Needs `acl:write`. Refuses tokens that a login created or that expire too soon.
    pub(crate) async fn create_clone(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        source: Id,
        description: &str,
    ) -> Result<CreatedToken, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_clone(namespace, source, description)).await
    }

    async fn try_clone(
        self,
        namespace: &NamespaceName,
        source: Id,
        description: &str,
    ) -> Result<CreatedToken, ServiceError> {
        let target = self.service.records.writable_namespace(namespace).await?;
        let Some(source) = self.find(namespace, source, Freshness::Linearizable).await? else {
            return Err(NotFound::ClonedToken.into());
        };
        let token = &source.value;
        let immutable = source.value.immutable();
        // Consul's rule. The clone would outlive its auth method, whose deletion ends the tokens of its logins.
        if immutable.login.is_some() {
            return Err(InvalidRequest::LoginTokenCloned.into());
        }
        let create_time = self.service.now();
        // The clone ends with its source, and must still live for the least TTL.
        if let Some(end) = immutable.expiration_time {
            validate_end(create_time, end)?;
        }
        let secret = PlainSecret::random();
        let new = ValidatedToken {
            accessor: Id::random(),
            secret: secret.clone(),
            description: if description.is_empty() { token.description.clone() } else { description.to_owned() },
            links: token.links.clone(),
            roles: token.roles.clone(),
            local: immutable.local,
            create_time,
            expiration_time: immutable.expiration_time,
            login: None,
        };
        let live = self.service.token_records().insert(&target, new, Transaction::default()).await?;
        Ok(CreatedToken { live, secret })
    }
}

fn id_taken(field: &'static str) -> ServiceError {
    Conflict::TokenId { field }.into()
}
