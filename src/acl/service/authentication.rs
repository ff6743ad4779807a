//! Callers are found by the secret that they present, with all that they may do.

use std::sync::Arc;

use super::acl_service::Directory;
use super::caller::{Caller, Live};
use super::error::ServiceError;
use super::keys::{self, Whereabouts};
use super::rules_cache::Here;
use crate::acl::model::auth_method::AuthMethodRecord;
use crate::acl::model::authorize::{Carried, Grants};
use crate::acl::model::id::Id;
use crate::acl::model::links::Links;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::policy::PolicyRecord;
use crate::acl::model::role::RoleRecord;
use crate::acl::model::rules::Rules;
use crate::acl::model::secret::{PlainSecret, SecretHash};
use crate::acl::model::token::{ANONYMOUS, TokenRecord};
use crate::acl::store::{Freshness, StoreError};

impl Directory {
    /// Who presents that secret; the anonymous token without one.
    ///
    /// # Errors
    /// [`ServiceError::UnknownSecret`] if it opens nothing; the store failed.
    pub async fn caller(
        &self,
        presented: Option<&PlainSecret>,
        freshness: Freshness,
    ) -> Result<Arc<Caller>, ServiceError> {
        let known = presented.map(|secret| self.known_as(secret));
        self.caller_known_as(known.as_ref(), presented, freshness).await
    }

    /// By what whoever presents that secret is known here while this server runs: nobody else is, though another name may
    /// be given after the key was changed.
    pub fn known_as(&self, presented: &PlainSecret) -> SecretHash {
        self.sealer.keys().current().hash(presented)
    }

    /// As [`Directory::caller`], for one who asks again and again: `known` is what that secret was once known as.
    ///
    /// # Errors
    /// As [`Directory::caller`].
    pub async fn caller_known_as(
        &self,
        known: Option<&SecretHash>,
        presented: Option<&PlainSecret>,
        freshness: Freshness,
    ) -> Result<Arc<Caller>, ServiceError> {
        // Taken before the records are read: of what is written meanwhile too much is forgotten, not too little.
        let at = self.records.store().last("");
        if let Some(caller) = at.and_then(|at| self.callers.get(known, at))
            && !caller.live.token.value.is_expired(self.now())
        {
            return Ok(caller);
        }
        let live = match presented {
            Some(secret) => self.live_by_secret(secret, freshness).await?,
            None => self.live(&NamespaceName::default_one(), ANONYMOUS, freshness).await?,
        };
        let live = live.ok_or(ServiceError::UnknownSecret)?;
        let grants = self.grants(&live.token.value, freshness).await?;
        let caller = Arc::new(Caller { live, grants });
        if let Some(at) = at {
            self.callers.keep(known.cloned(), at, &caller);
        }
        Ok(caller)
    }

    /// The token with that secret, if it counts: its end has not come, swept or not, its namespace is not being deleted,
    /// and the method that made it is still there.
    ///
    /// # Errors
    /// The store failed.
    pub async fn live_by_secret(
        &self,
        secret: &PlainSecret,
        freshness: Freshness,
    ) -> Result<Option<Live>, ServiceError> {
        let (mut keys, mut freshness) = (self.sealer.keys(), freshness);
        loop {
            for hash in keys.hashes(secret) {
                let found = self.records.get::<Whereabouts>(&keys::token_id(&hash), freshness).await?;
                if let Some(found) = found.filter(|found| found.value.secret) {
                    return self.live(&found.value.namespace, found.value.accessor, freshness).await;
                }
            }
            // That nothing was found says something only if the keys were the same all the while.
            let (before, looked) = (keys.at, std::mem::take(&mut freshness));
            keys = self.keys_now().await?;
            if keys.at == before && looked == freshness {
                return Ok(None);
            }
        }
    }

    async fn live(
        &self,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<Live>, ServiceError> {
        let Some(live) = self.unexpired(namespace, accessor, freshness).await? else { return Ok(None) };
        let home = self.namespace(namespace, freshness).await?;
        let open = home.is_some_and(|home| home.value.deleted_at.is_none());
        let counts = open && self.method_stands(&live.token.value, freshness).await?;
        Ok(Some(live).filter(|_| counts))
    }

    /// The token with that accessor, unless its end has come.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn unexpired(
        &self,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<Live>, ServiceError> {
        let token = self.records.get::<TokenRecord>(&keys::token(namespace, accessor), freshness).await?;
        let read = self.now();
        Ok(token.filter(|token| !token.value.is_expired(read)).map(|token| Live { token, read }))
    }

    /// Whether the auth method that made a token is there, and is that very one. Methods of the configuration file make
    /// tokens that live on without them.
    pub(super) async fn method_stands(&self, token: &TokenRecord, freshness: Freshness) -> Result<bool, ServiceError> {
        let Some(login) = &token.birth().login else { return Ok(true) };
        let Some(id) = login.method_id else { return Ok(true) };
        let key = keys::auth_method(&login.namespace, &login.auth_method);
        let method = self.records.get::<AuthMethodRecord>(&key, freshness).await?;
        Ok(method.is_some_and(|method| method.value.id == id))
    }

    async fn grants(&self, token: &TokenRecord, freshness: Freshness) -> Result<Grants, ServiceError> {
        let namespace = &token.birth().namespace;
        let direct = self.rules_of(namespace, &token.links, &token.roles, freshness).await?;
        let home = self.namespace(namespace, freshness).await?;
        let defaults = match home.as_ref().and_then(|home| home.value.defaults.as_ref()) {
            Some(defaults) => {
                let links = Links { policies: defaults.policies.clone(), ..Links::default() };
                self.rules_of(&NamespaceName::default_one(), &links, &defaults.roles, freshness).await?
            }
            None => Vec::new(),
        };
        Ok(Grants {
            own_namespace: namespace.key().into_owned(),
            direct,
            defaults,
            default_policy: self.default_policy,
        })
    }

    /// The rules that links and roles of a namespace give here. A link whose policy or role was deleted gives nothing.
    async fn rules_of(
        &self,
        namespace: &NamespaceName,
        links: &Links,
        roles: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<Carried>, ServiceError> {
        let mut found = Vec::new();
        self.gather(namespace, links, freshness, &mut found).await?;
        for role in roles {
            if let Some(role) = self.records.get::<RoleRecord>(&keys::role(namespace, *role), freshness).await? {
                self.gather(namespace, &role.value.links, freshness, &mut found).await?;
            }
        }
        Ok(found)
    }

    async fn gather(
        &self,
        namespace: &NamespaceName,
        links: &Links,
        freshness: Freshness,
        found: &mut Vec<Carried>,
    ) -> Result<(), ServiceError> {
        for policy in &links.policies {
            if let Some(rules) = self.rules_of_policy(namespace, *policy, freshness).await? {
                found.push(Carried::new(&namespace.key(), rules));
            }
        }
        for policy in links.synthetic().iter().filter(|policy| policy.counts_in(&self.datacenter)) {
            // What a template gives was looked at when it was linked.
            if let Ok(rules) = self.rules.text(&policy.rules) {
                found.push(Carried::new(&namespace.key(), rules));
            }
        }
        Ok(())
    }

    async fn rules_of_policy(
        &self,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Arc<Rules>>, ServiceError> {
        let key = keys::policy(namespace, id);
        // The record is decoded only where its rules are not known.
        let Some(record) = self.records.store().get(&key, freshness).await? else { return Ok(None) };
        match self.rules.policy(id, record.modified) {
            Some(Here::Rules(rules)) => return Ok(Some(rules)),
            Some(Here::Nothing) => return Ok(None),
            None => {}
        }
        // To leave a policy out that cannot be read would be to leave its denials out.
        let unreadable = || StoreError::Unreadable { key: key.as_str().to_owned() };
        let policy: PolicyRecord = serde_json::from_slice(&record.value).map_err(|_| unreadable())?;
        let rules = Rules::parse(&policy.rules).map_err(|_| unreadable())?;
        let rules = policy.counts_in(&self.datacenter).then(|| Arc::new(rules));
        self.rules.keep(id, record.modified, rules.clone().map_or(Here::Nothing, Here::Rules));
        Ok(rules)
    }
}
