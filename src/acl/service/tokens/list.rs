//! Lists of tokens, page by page: memory is bounded by one page.

use std::collections::HashMap;
use std::sync::Arc;

use super::filter::TokenFilter;
use crate::model::auth_method::AuthMethodRecord;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::{PlainSecret, REDACTED};
use crate::model::token::TokenRecord;
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::service::error::ServiceError;
use crate::service::links::{Link, LinkKind};
use crate::service::lists::Omitted;
use crate::service::record_keys;
use crate::service::restore_lock::Epoch;
use crate::service::typed_store::Stored;
use crate::store::{Freshness, Key};

/// Token list that is read page by page.
#[derive(Debug)]
pub(crate) struct TokenPages {
    /// Omitted tokens, as far as known: any page may contain an unreadable token.
    pub omitted: Omitted,
    /// Key of the first unreadable token found.
    pub unreadable: Option<Key>,
    caller: Arc<Caller>,
    filter: TokenFilter,
    freshness: Freshness,
    /// Pages of different epochs must not be mixed.
    epoch: Epoch,
    /// Remaining namespaces, the next one last.
    namespaces: Vec<NamespaceName>,
    /// Key to continue after in the current namespace.
    after: Option<Key>,
    lookups: LookupCache,
}

/// Token of a list.
#[derive(Debug)]
pub(crate) struct ListedToken {
    /// Token record.
    pub token: Stored<TokenRecord>,
    /// Secret, or [`REDACTED`].
    pub secret: PlainSecret,
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
        let epoch = service.epoch(freshness).await?;
        let readable = service.records.readable_namespaces(&caller, "token", namespace, freshness).await?;
        let mut namespaces = readable.namespaces;
        let mut omitted = readable.omitted;
        let damaged = |namespace: &NamespaceName| {
            service.typed_store.has_unreadable(&record_keys::kind_prefix("token", Some(namespace)))
        };
        omitted.unreadable |= namespaces.iter().any(damaged);
        namespaces.reverse();
        let after = None;
        let lookups = LookupCache::default();
        Ok(Self { omitted, unreadable: None, caller, filter, freshness, epoch, namespaces, after, lookups })
    }

    /// Returns the next page of tokens in key order, without expired ones; it may be empty. `None` at the end. Fails if
    /// a restore has begun.
    pub(crate) async fn next(&mut self, service: &AclService) -> Result<Option<Vec<ListedToken>>, ServiceError> {
        let Some(namespace) = self.namespaces.last().cloned() else { return Ok(None) };
        let prefix = record_keys::kind_prefix("token", Some(&namespace));
        let page = service.typed_store.page::<TokenRecord>(&prefix, self.after.take(), self.freshness).await?;
        self.omitted.unreadable |= page.unreadable.is_some();
        self.unreadable = self.unreadable.take().or(page.unreadable);
        let now = service.now();
        let mut listed = Vec::with_capacity(page.entries.len());
        for (_, token) in page.entries {
            let is_match = !token.value.is_expired(now) && self.filter.matches(&token.value);
            if !is_match || !self.lookups.auth_method_exists(service, &token.value, self.freshness).await? {
                continue;
            }
            let secret = match service.tokens().visible_secret(&self.caller, &token.value).await {
                // The token is still valid and can be deleted.
                Err(ServiceError::Seal(_)) => PlainSecret::from_presented(REDACTED),
                secret => secret?,
            };
            let links = &token.value.links.policies;
            let policies = self.lookups.links(service, &namespace, LinkKind::Policy, links, self.freshness).await?;
            let roles = &token.value.roles;
            let roles = self.lookups.links(service, &namespace, LinkKind::Role, roles, self.freshness).await?;
            listed.push(ListedToken { token, secret, policies, roles });
        }
        if !service.epoch(self.freshness).await?.is(self.epoch) {
            return Err(ServiceError::Restoring);
        }
        self.after = page.next;
        if self.after.is_none() {
            self.namespaces.pop();
            self.lookups = LookupCache::default();
        }
        Ok(Some(listed))
    }
}

/// Lookups for other tokens of the same list and namespace.
#[derive(Debug, Default)]
struct LookupCache {
    links: HashMap<(LinkKind, Id), Option<Link>>,
    methods: HashMap<Key, Option<Id>>,
}

/// Most entries of each map. A full map is emptied.
const MAX_ENTRIES: usize = 1024;

impl LookupCache {
    async fn links(
        &mut self,
        service: &AclService,
        namespace: &NamespaceName,
        kind: LinkKind,
        ids: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<Link>, ServiceError> {
        let mut links = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(link) = self.links.get(&(kind, *id)) {
                links.extend(link.clone());
                continue;
            }
            let link = service.links().get(namespace, kind, *id, freshness).await?;
            links.extend(link.clone());
            remember(&mut self.links, (kind, *id), link);
        }
        Ok(links)
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
        remember(&mut self.methods, key, found_id);
        Ok(found_id == Some(id))
    }
}

fn remember<K: std::hash::Hash + Eq, V>(lookups: &mut HashMap<K, V>, key: K, value: V) {
    if lookups.len() >= MAX_ENTRIES {
        lookups.clear();
    }
    lookups.insert(key, value);
}
