//! Policies: drafts and their validation, and the policies of login roles.

use super::error::ServiceError;
use super::links::truncate;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::records::RecordKind;
use super::rejection::{Conflict, Forbidden, InvalidRequest};
use super::transaction::{Transaction, retry_on_conflict};
use crate::model::id::Id;
use crate::model::names::{NamespaceName, is_policy_name, is_policy_or_builtin_name};
use crate::model::policy::{GLOBAL_MANAGEMENT, GLOBAL_READ_ONLY, GLOBAL_READ_ONLY_NAME, NewPolicy, PolicyRecord};
use crate::model::rules::Rules;
use crate::store::{Freshness, Key};

impl RecordKind for PolicyRecord {
    const KEY: &'static str = "policy";
    const NAME: &'static str = "policy";
    type Id = Id;
    type Draft = NewPolicy;

    fn id(&self) -> &Id {
        &self.id
    }

    fn namespace(&self) -> &NamespaceName {
        &self.namespace
    }

    fn key(namespace: &NamespaceName, id: &Id) -> Result<Key, InvalidRequest> {
        Ok(record_keys::policy(namespace, *id))
    }

    fn name_key(namespace: &NamespaceName, name: &str) -> Option<Key> {
        is_policy_or_builtin_name(name).then(|| record_keys::policy_name(namespace, name))
    }

    fn claim(&self, _is_new: bool) -> Option<(Key, Conflict)> {
        Some((record_keys::policy_name(&self.namespace, &self.name), Conflict::PolicyName(self.name.clone())))
    }

    /// Only name and description of built-in policies can change.
    async fn build(
        _records: &NamespacedRecords,
        namespace: &NamespaceName,
        draft: &NewPolicy,
        previous: Option<&Self>,
    ) -> Result<(Self, Transaction), ServiceError> {
        let mut rules = &draft.rules;
        let mut is_reserved_name = false;
        if let Some(old) = previous.filter(|old| is_built_in(old.id)) {
            if rules.is_empty() {
                rules = &old.rules;
            }
            if *rules != old.rules || !draft.datacenters.is_empty() {
                return Err(InvalidRequest::BuiltinPolicy(old.name.clone()).into());
            }
            // The names of built-in policies are reserved for them.
            is_reserved_name =
                draft.name == old.name || old.id == GLOBAL_READ_ONLY && draft.name == GLOBAL_READ_ONLY_NAME;
        }
        if !is_reserved_name {
            validate(&draft.name, rules)?;
        }
        let policy = Self {
            id: previous.map_or_else(Id::random, |old| old.id),
            name: draft.name.clone(),
            namespace: namespace.clone(),
            description: draft.description.clone(),
            rules: rules.clone(),
            datacenters: draft.datacenters.clone(),
        };
        Ok((policy, Transaction::default()))
    }

    fn require_deletable(&self) -> Result<(), Forbidden> {
        if is_built_in(self.id) { Err(Forbidden::BuiltinPolicy(self.name.clone())) } else { Ok(()) }
    }
}

impl NamespacedRecords {
    /// Returns the id of the policy in `default` that login roles name, and remembers it: a renamed policy stays linked.
    /// A missing policy is created without rules: it grants nothing until rules are written.
    pub(crate) async fn ensure_login_policy(&self, name: &str) -> Result<Id, ServiceError> {
        let namespace = NamespaceName::default_namespace();
        let draft = NewPolicy { name: name.to_owned(), ..NewPolicy::default() };
        for _ in 0..3 {
            if let Some(id) = self.find_login_policy(&namespace, name).await? {
                return Ok(id);
            }
            let attempt = async || {
                let (target, policy, transaction) = self.prepare_create::<PolicyRecord>(&namespace, &draft).await?;
                let transaction = transaction.put(record_keys::login_policy(name), &policy.id)?;
                self.commit_new(&target, transaction, policy).await
            };
            match retry_on_conflict(attempt).await {
                Ok(made) => {
                    tracing::warn!(
                        event = "acl.login.policy_created",
                        policy = name,
                        "a login role names a policy that does not exist; created it without rules"
                    );
                    return Ok(made.value.id);
                }
                // Another writer created it; read again.
                Err(ServiceError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ServiceError::Contention)
    }

    /// Returns the id of the policy with that name, or else of the one that had it last; `None` if neither exists.
    async fn find_login_policy(&self, namespace: &NamespaceName, name: &str) -> Result<Option<Id>, ServiceError> {
        let typed_store = &self.typed_store;
        let key = record_keys::login_policy(name);
        let named = typed_store.get::<Id>(&record_keys::policy_name(namespace, name), Freshness::Linearizable).await?;
        let remembered = match typed_store.get::<Id>(&key, Freshness::Linearizable).await {
            // A damaged entry must not block logins; the next write replaces it.
            Err(error) if typed_store.skip_unreadable(&error) => None,
            entry => entry?.map(|entry| *entry.value),
        };
        match (named, remembered) {
            (Some(named), remembered) => {
                let id = *named.value;
                if remembered != Some(id) {
                    typed_store.commit(Transaction::default().put(key, &id)?).await?;
                }
                Ok(Some(id))
            }
            (None, Some(id)) => {
                let policy =
                    typed_store.store().get(&record_keys::policy(namespace, id), Freshness::Linearizable).await?;
                Ok(policy.map(|_| id))
            }
            (None, None) => Ok(None),
        }
    }
}

fn is_built_in(id: Id) -> bool {
    id == GLOBAL_MANAGEMENT || id == GLOBAL_READ_ONLY
}

fn validate(name: &str, rules: &str) -> Result<(), InvalidRequest> {
    if name.is_empty() {
        return Err(InvalidRequest::PolicyNameMissing);
    }
    if !is_policy_name(name) {
        return Err(InvalidRequest::PolicyName(truncate(name)));
    }
    Rules::parse(rules).map_err(|error| InvalidRequest::Rules(error.to_string()))?;
    Ok(())
}
