//! Lists of tokens, page by page: memory is bounded by one page.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::filter::TokenFilter;
use crate::model::auth_method::AuthMethodRecord;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::REDACTED;
use crate::model::token::TokenRecord;
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::service::error::ServiceError;
use crate::service::links::{Link, LinkCache, LinkKind};
use crate::service::lists::RecordPages;
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::{Freshness, Key};

/// Token list that is read page by page.
#[derive(Debug)]
pub(crate) struct TokenPages {
    /// Pages of the records.
    pub pages: RecordPages,
    caller: Arc<Caller>,
    filter: TokenFilter,
    links: LinkCache,
    /// Ids of auth methods that were looked up for other tokens of the list.
    methods: HashMap<Key, Option<Id>>,
}

/// Token of a list. Not `Debug`, as it holds a secret.
pub(crate) struct ListedToken {
    /// Token record.
    pub token: Stored<TokenRecord>,
    /// Secret, or [`REDACTED`].
    pub secret: Cow<'static, str>,
    /// Linked policies.
    pub policies: Vec<Link>,
    /// Linked roles.
    pub roles: Vec<Link>,
}

impl TokenPages {
    /// Lists the tokens of one namespace, or of all in which the caller has `acl:read`. Needs `acl:read` in the given
    /// namespace.
    pub(crate) async fn open(
        service: &AclService,
        caller: Arc<Caller>,
        namespace: Option<&NamespaceName>,
        filter: TokenFilter,
        freshness: Freshness,
    ) -> Result<Self, ServiceError> {
        let pages = service.open_list(&caller, "token", namespace, freshness).await?;
        Ok(Self { pages, caller, filter, links: LinkCache::default(), methods: HashMap::new() })
    }

    /// Returns the next page of tokens in key order, without expired ones; it may be empty. `None` at the end.
    pub(crate) async fn next(&mut self, service: &AclService) -> Result<Option<Vec<ListedToken>>, ServiceError> {
        let Some(page) = self.pages.next::<TokenRecord>(service).await? else { return Ok(None) };
        let freshness = self.pages.freshness();
        let now = service.now();
        let mut listed = Vec::with_capacity(page.len());
        for token in page {
            let is_match = !token.value.is_expired(now) && self.filter.matches(&token.value);
            if !is_match || !self.auth_method_exists(service, &token.value, freshness).await? {
                continue;
            }
            let secret = match service.tokens().visible_secret(&self.caller, &token.value).await {
                // The token is still valid and can be deleted.
                Err(ServiceError::Seal(_)) => REDACTED.into(),
                secret => secret?,
            };
            let (resolver, namespace) = (service.links(), &token.value.immutable().namespace);
            let policies = &token.value.links.policies;
            let policies = self.links.load(resolver, namespace, LinkKind::Policy, policies, freshness).await?;
            let roles = self.links.load(resolver, namespace, LinkKind::Role, &token.value.roles, freshness).await?;
            listed.push(ListedToken { token, secret, policies, roles });
        }
        Ok(Some(listed))
    }

    /// See `Authenticator::auth_method_exists`.
    async fn auth_method_exists(
        &mut self,
        service: &AclService,
        token: &TokenRecord,
        freshness: Freshness,
    ) -> Result<bool, ServiceError> {
        let Some(login) = &token.immutable().login else { return Ok(true) };
        let Some(id) = login.method_id else { return Ok(true) };
        let key = record_keys::auth_method(&login.namespace, &login.auth_method);
        if let Some(found_id) = self.methods.get(&key) {
            return Ok(*found_id == Some(id));
        }
        let found_id = match service.typed_store.get::<AuthMethodRecord>(&key, freshness).await {
            Ok(method) => method.map(|method| method.value.id),
            // Unknown whether the method exists. The token does not authenticate, but it is listed.
            Err(error) if service.typed_store.skip_unreadable(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        if self.methods.len() >= MAX_METHODS {
            self.methods.clear();
        }
        self.methods.insert(key, found_id);
        Ok(found_id == Some(id))
    }
}

/// Most auth methods whose ids are kept. A full map is emptied.
const MAX_METHODS: usize = 1024;
