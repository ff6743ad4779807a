//! Lists of tokens, page by page: a list of any length takes the memory of one page.

use std::collections::HashMap;
use std::sync::Arc;

use super::filter::TokenFilter;
use crate::acl::model::auth_method::AuthMethodRecord;
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::{PlainSecret, REDACTED};
use crate::acl::model::token::TokenRecord;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::caller::Caller;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::links::{Link, Linked};
use crate::acl::service::lists::LeftOut;
use crate::acl::service::repository::Stored;
use crate::acl::service::restore_lock::Epoch;
use crate::acl::store::{Freshness, Key, Revision};

/// A list of tokens that is not read yet.
#[derive(Debug)]
pub struct TokenPages {
    /// What is left out, as far as it is known: that a token cannot be read may be found on any page.
    pub left_out: LeftOut,
    /// A token of this list that cannot be read, as soon as there was one.
    pub unreadable: Option<Key>,
    /// The last change of any token, taken before the list is read.
    pub revision: Revision,
    caller: Arc<Caller>,
    filter: TokenFilter,
    freshness: Freshness,
    /// No page of another store is put after those of this one.
    epoch: Epoch,
    /// The namespaces that are left, the next one last.
    namespaces: Vec<NamespaceName>,
    /// Where the namespace under way goes on.
    after: Option<Key>,
    known: Known,
}

/// A token of a list.
#[derive(Debug)]
pub struct Listed {
    /// The token.
    pub token: Stored<TokenRecord>,
    /// Its secret, or what stands for it.
    pub secret: PlainSecret,
    /// The policies that it links.
    pub policies: Vec<Link>,
    /// The roles that it has.
    pub roles: Vec<Link>,
}

impl Directory {
    /// The tokens of one namespace, or of all in which the caller has `acl:read`.
    ///
    /// # Errors
    /// The caller lacks `acl:read` in the one namespace, or there is none of that name; the store failed.
    pub async fn tokens(
        &self,
        caller: Arc<Caller>,
        namespace: Option<&NamespaceName>,
        filter: TokenFilter,
        freshness: Freshness,
    ) -> Result<TokenPages, ServiceError> {
        let epoch = self.epoch(freshness).await?;
        let open = self.readable(&caller, "token", namespace, freshness).await?;
        let (mut namespaces, mut left_out) = (open.namespaces, open.left_out);
        let damaged = |namespace: &NamespaceName| self.records.has_unreadable(&keys::within("token", Some(namespace)));
        left_out.unreadable |= namespaces.iter().any(damaged);
        namespaces.reverse();
        let (revision, after, known) = (open.revision, None, Known::default());
        Ok(TokenPages {
            left_out,
            unreadable: None,
            revision,
            caller,
            filter,
            freshness,
            epoch,
            namespaces,
            after,
            known,
        })
    }
}

impl TokenPages {
    /// The next tokens, in the order of their keys, which may be none of a page; `None` at the end. Those whose end has come
    /// are left out.
    ///
    /// # Errors
    /// The store failed, or a restore has begun.
    pub async fn next(&mut self, directory: &Directory) -> Result<Option<Vec<Listed>>, ServiceError> {
        let Some(namespace) = self.namespaces.last().cloned() else { return Ok(None) };
        let prefix = keys::within("token", Some(&namespace));
        let part = directory.records.page::<TokenRecord>(&prefix, self.after.take(), self.freshness).await?;
        self.left_out.unreadable |= part.unreadable.is_some();
        self.unreadable = self.unreadable.take().or(part.unreadable);
        let now = directory.now();
        let mut listed = Vec::with_capacity(part.entries.len());
        for (_, token) in part.entries {
            let wanted = !token.value.is_expired(now) && self.filter.admits(&token.value);
            if !wanted || !self.known.method_stands(directory, &token.value, self.freshness).await? {
                continue;
            }
            let secret = match directory.secret_for(&self.caller, &token.value).await {
                // Its hash still finds it, and it can be deleted.
                Err(ServiceError::Seal(_)) => PlainSecret::presented(REDACTED),
                secret => secret?,
            };
            let links = &token.value.links.policies;
            let policies = self.known.links(directory, &namespace, Linked::Policy, links, self.freshness).await?;
            let roles = &token.value.roles;
            let roles = self.known.links(directory, &namespace, Linked::Role, roles, self.freshness).await?;
            listed.push(Listed { token, secret, policies, roles });
        }
        if !directory.epoch(self.freshness).await?.is(self.epoch) {
            return Err(ServiceError::Restoring);
        }
        self.after = part.next;
        if self.after.is_none() {
            self.namespaces.pop();
            self.known = Known::default();
        }
        Ok(Some(listed))
    }
}

/// What was looked up for other tokens of the same list and namespace.
#[derive(Debug, Default)]
struct Known {
    links: HashMap<(Linked, Id), Option<Link>>,
    methods: HashMap<Key, Option<Id>>,
}

/// Entries of each part. A full part is emptied.
const ENTRIES: usize = 1024;

impl Known {
    async fn links(
        &mut self,
        directory: &Directory,
        namespace: &NamespaceName,
        kind: Linked,
        ids: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<Link>, ServiceError> {
        let mut links = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(link) = self.links.get(&(kind, *id)) {
                links.extend(link.clone());
                continue;
            }
            let link = directory.link(namespace, kind, *id, freshness).await?;
            links.extend(link.clone());
            keep(&mut self.links, (kind, *id), link);
        }
        Ok(links)
    }

    /// As [`Directory::method_stands`].
    async fn method_stands(
        &mut self,
        directory: &Directory,
        token: &TokenRecord,
        freshness: Freshness,
    ) -> Result<bool, ServiceError> {
        let Some(login) = &token.birth().login else { return Ok(true) };
        let Some(id) = login.method_id else { return Ok(true) };
        let key = keys::auth_method(&login.namespace, &login.auth_method);
        if let Some(there) = self.methods.get(&key) {
            return Ok(*there == Some(id));
        }
        let there = match directory.records.get::<AuthMethodRecord>(&key, freshness).await {
            Ok(method) => method.map(|method| method.value.id),
            // Whether it stands cannot be told. Its token opens nothing, but it is there.
            Err(error) if directory.records.passes_over(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        keep(&mut self.methods, key, there);
        Ok(there == Some(id))
    }
}

fn keep<K: std::hash::Hash + Eq, V>(known: &mut HashMap<K, V>, key: K, value: V) {
    if known.len() >= ENTRIES {
        known.clear();
    }
    known.insert(key, value);
}
