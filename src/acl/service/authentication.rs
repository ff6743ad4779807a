//! Authentication: finds the token of a presented secret and loads its rules.

use std::sync::Arc;

use super::acl_service::AclService;
use super::caller::{Caller, LiveToken};
use super::error::ServiceError;
use super::record_keys::{self, TokenIndexEntry};
use super::rules_cache::CachedPolicy;
use crate::model::auth_method::AuthMethodRecord;
use crate::model::authorize::{Grants, PolicyId, PolicyInScope};
use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::names::NamespaceName;
use crate::model::policy::PolicyRecord;
use crate::model::role::RoleRecord;
use crate::model::rules::Rules;
use crate::model::secret::{PlainSecret, SecretHash};
use crate::model::token::{ANONYMOUS, TokenRecord};
use crate::store::{Freshness, StoreError};

/// Authentication of callers by their secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authenticator<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the authenticator of callers.
    pub(crate) fn authenticator(&self) -> Authenticator<'_> {
        Authenticator { service: self }
    }
}

impl Authenticator<'_> {
    /// Returns the caller that presents this secret; the anonymous token if there is none. Fails with
    /// [`ServiceError::UnknownSecret`] if no valid token has it.
    pub(crate) async fn authenticate(
        self,
        presented: Option<&PlainSecret>,
        freshness: Freshness,
    ) -> Result<Arc<Caller>, ServiceError> {
        let hash = presented.map(|secret| self.presented_hash(secret));
        self.authenticate_hashed(hash.as_ref(), presented, freshness).await
    }

    /// Returns the keyed hash of a presented secret; stable for this process, changes on key rotation.
    pub(crate) fn presented_hash(self, presented: &PlainSecret) -> SecretHash {
        self.service.sealer.keys().current().hash(presented)
    }

    /// Like [`Authenticator::authenticate`], with the secret's [`Authenticator::presented_hash`] computed earlier by the
    /// caller.
    pub(crate) async fn authenticate_hashed(
        self,
        hash: Option<&SecretHash>,
        presented: Option<&PlainSecret>,
        freshness: Freshness,
    ) -> Result<Arc<Caller>, ServiceError> {
        // Read before the records: a concurrent write then invalidates the cached caller, never the reverse.
        let at = self.service.typed_store.store().last("");
        if let Some(caller) = at.and_then(|at| self.service.callers.get(hash, at))
            && !caller.live.token.value.is_expired(self.service.now())
        {
            return Ok(caller);
        }
        let live = match presented {
            Some(secret) => self.live_token_by_secret(secret, freshness).await?,
            None => self.live_token(&NamespaceName::default_namespace(), ANONYMOUS, freshness).await?,
        };
        let live = live.ok_or(ServiceError::UnknownSecret)?;
        let grants = self.load_grants(&live.token.value, freshness).await?;
        let caller = Arc::new(Caller { live, grants });
        if let Some(at) = at {
            self.service.callers.insert(hash.cloned(), at, &caller);
        }
        Ok(caller)
    }

    /// Returns the valid token with that secret: not expired, its namespace not marked for deletion, its auth method
    /// not deleted.
    pub(crate) async fn live_token_by_secret(
        self,
        secret: &PlainSecret,
        freshness: Freshness,
    ) -> Result<Option<LiveToken>, ServiceError> {
        let mut keys = self.service.sealer.keys();
        let mut freshness = freshness;
        loop {
            for hash in keys.hashes(secret) {
                let entry =
                    self.service.typed_store.get::<TokenIndexEntry>(&record_keys::token_id(&hash), freshness).await?;
                if let Some(entry) = entry.filter(|entry| entry.value.secret) {
                    return self.live_token(&entry.value.namespace, entry.value.accessor, freshness).await;
                }
            }
            // A miss is conclusive only if the keys did not change during the lookup.
            let previous = keys.at;
            let tried_freshness = std::mem::take(&mut freshness);
            keys = self.service.reload_keys().await?;
            if keys.at == previous && tried_freshness == freshness {
                return Ok(None);
            }
        }
    }

    async fn live_token(
        self,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<LiveToken>, ServiceError> {
        let Some(live) = self.unexpired_token(namespace, accessor, freshness).await? else { return Ok(None) };
        let record = self.service.records.namespace(namespace, freshness).await?;
        let open = record.is_some_and(|record| record.value.deleted_at.is_none());
        let valid = open && self.auth_method_exists(&live.token.value, freshness).await?;
        Ok(Some(live).filter(|_| valid))
    }

    /// Returns the token with that accessor unless it has expired.
    pub(super) async fn unexpired_token(
        self,
        namespace: &NamespaceName,
        accessor: Id,
        freshness: Freshness,
    ) -> Result<Option<LiveToken>, ServiceError> {
        let token =
            self.service.typed_store.get::<TokenRecord>(&record_keys::token(namespace, accessor), freshness).await?;
        let read_at = self.service.now();
        Ok(token.filter(|token| !token.value.is_expired(read_at)).map(|token| LiveToken { token, read_at }))
    }

    /// Returns whether the auth method that created a token still exists with the same id. Tokens of methods in the
    /// configuration file outlive a removal of the method.
    pub(super) async fn auth_method_exists(
        self,
        token: &TokenRecord,
        freshness: Freshness,
    ) -> Result<bool, ServiceError> {
        let Some(login) = &token.immutable().login else { return Ok(true) };
        let Some(id) = login.method_id else { return Ok(true) };
        let key = record_keys::auth_method(&login.namespace, &login.auth_method);
        let method = self.service.typed_store.get::<AuthMethodRecord>(&key, freshness).await?;
        Ok(method.is_some_and(|method| method.value.id == id))
    }

    /// Loads everything that determines the permissions of a token.
    pub(super) async fn load_grants(self, token: &TokenRecord, freshness: Freshness) -> Result<Grants, ServiceError> {
        let namespace = &token.immutable().namespace;
        let direct = self.load_rules(namespace, &token.links, &token.roles, freshness).await?;
        let record = self.service.records.namespace(namespace, freshness).await?;
        let defaults = match record.as_ref().and_then(|record| record.value.defaults.as_ref()) {
            Some(defaults) => {
                let links = Links { policies: defaults.policies.clone(), ..Links::default() };
                self.load_rules(&NamespaceName::default_namespace(), &links, &defaults.roles, freshness).await?
            }
            None => Vec::new(),
        };
        Ok(Grants {
            own_namespace: namespace.key().into_owned(),
            direct,
            defaults,
            default_policy: self.service.default_policy,
        })
    }

    /// Loads the rules of linked policies and roles that apply on this server. Links to deleted policies and roles
    /// grant nothing.
    async fn load_rules(
        self,
        namespace: &NamespaceName,
        links: &Links,
        roles: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<PolicyInScope>, ServiceError> {
        let mut policies = Vec::new();
        self.collect_rules(namespace, links, freshness, &mut policies).await?;
        for role in roles {
            if let Some(role) =
                self.service.typed_store.get::<RoleRecord>(&record_keys::role(namespace, *role), freshness).await?
            {
                self.collect_rules(namespace, &role.value.links, freshness, &mut policies).await?;
            }
        }
        Ok(policies)
    }

    async fn collect_rules(
        self,
        namespace: &NamespaceName,
        links: &Links,
        freshness: Freshness,
        policies: &mut Vec<PolicyInScope>,
    ) -> Result<(), ServiceError> {
        for policy in &links.policies {
            if let Some(rules) = self.load_policy_rules(namespace, *policy, freshness).await? {
                policies.push(PolicyInScope::new(&namespace.key(), PolicyId::Stored(*policy), rules));
            }
        }
        for policy in links.synthetic_policies().iter().filter(|policy| policy.applies_in(&self.service.datacenter)) {
            // Templates are validated when they are linked.
            if let Ok(rules) = self.service.rules.text(&policy.rules) {
                let id = PolicyId::Synthetic(policy.id.as_str().into());
                policies.push(PolicyInScope::new(&namespace.key(), id, rules));
            }
        }
        Ok(())
    }

    async fn load_policy_rules(
        self,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Arc<Rules>>, ServiceError> {
        let key = record_keys::policy(namespace, id);
        // Decode the record only if its rules are not cached.
        let Some(record) = self.service.typed_store.store().get(&key, freshness).await? else { return Ok(None) };
        match self.service.rules.policy(id, record.modified) {
            Some(CachedPolicy::Rules(rules)) => return Ok(Some(rules)),
            Some(CachedPolicy::OtherDatacenter) => return Ok(None),
            None => {}
        }
        // Skipping an unreadable policy would also skip its deny rules.
        let unreadable = || StoreError::Unreadable { key: key.as_str().to_owned() };
        let policy: PolicyRecord = serde_json::from_slice(&record.value).map_err(|_| unreadable())?;
        let rules = Rules::parse(&policy.rules).map_err(|_| unreadable())?;
        let rules = policy.applies_in(&self.service.datacenter).then(|| Arc::new(rules));
        self.service.rules.insert(
            id,
            record.modified,
            rules.clone().map_or(CachedPolicy::OtherDatacenter, CachedPolicy::Rules),
        );
        Ok(rules)
    }
}
