//! Operations on binding rules.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::links::truncate;
use super::lists::RecordList;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::rejection::{InvalidRequest, NotFound};
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::Stored;
use crate::model::auth_method::{AuthMethodRecord, MethodConfig};
use crate::model::binding_rule::{BindType, Binding, BindingRuleRecord};
use crate::model::id::Id;
use crate::model::names::{NamespaceName, is_name};
use crate::model::selector::Selector;
use crate::store::Freshness;

/// Fields of a binding rule as a request gives them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BindingRuleDraft {
    /// Description.
    pub description: String,
    /// Name of the auth method; may be empty in an update.
    pub auth_method: String,
    /// Selector of the logins that it applies to; empty for all.
    pub selector: String,
    /// Type of what the rule binds, see [`BindType`].
    pub bind_type: String,
    /// Name of what the rule binds, with `${value.NAME}` placeholders.
    pub bind_name: String,
    /// Variables of a templated policy.
    pub bind_vars: Option<Map<String, Value>>,
}

/// Operations on binding rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BindingRules<'a> {
    records: &'a NamespacedRecords,
}

impl AclService {
    /// Returns the operations on binding rules.
    pub(crate) fn binding_rules(&self) -> BindingRules<'_> {
        BindingRules { records: &self.records }
    }
}

impl BindingRules<'_> {
    /// Creates a binding rule. Needs `acl:write`.
    pub(crate) async fn create(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_create(namespace, draft)).await
    }

    async fn try_create(
        self,
        namespace: &NamespaceName,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        let target = self.records.writable_namespace(namespace).await?;
        let (method, transaction) = self.load_method(namespace, &draft.auth_method).await?;
        let rule = validate_draft(draft, Id::random(), target.name.clone(), &method)?;
        let key = record_keys::binding_rule(namespace, rule.id);
        let transaction = transaction.require_absent(&key).put(key, &rule)?;
        self.records.commit_new(&target, transaction, rule).await
    }

    /// Returns the auth method of a rule, and a transaction with the precondition that it is unchanged.
    async fn load_method(
        self,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<(AuthMethodRecord, Transaction), ServiceError> {
        if name.is_empty() {
            return Err(InvalidRequest::RuleMethodMissing.into());
        }
        let key = record_keys::auth_method(namespace, name);
        let method = if is_name(name) {
            self.records.typed_store.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?
        } else {
            None
        };
        let method = method.ok_or_else(|| InvalidRequest::RuleMethod(truncate(name)))?;
        Ok(((*method.value).clone(), Transaction::default().require_unchanged(&key, method.modified)))
    }

    /// Returns whether the auth method of a rule still exists with the same id. The rules of a deleted method can remain in
    /// the store for a while, see `AuthMethods::delete`.
    async fn method_exists(self, rule: &BindingRuleRecord, freshness: Freshness) -> Result<bool, ServiceError> {
        let key = record_keys::auth_method(&rule.namespace, &rule.auth_method);
        match self.records.typed_store.get::<AuthMethodRecord>(&key, freshness).await {
            Ok(method) => Ok(method.is_some_and(|method| method.value.id == rule.method_id)),
            // Unknown whether the method exists. The rule grants nothing, but it is shown and can be deleted.
            Err(error) if self.records.typed_store.skip_unreadable(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the binding rule; `None` if it or its auth method does not exist. Needs `acl:read`.
    pub(crate) async fn get(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<BindingRuleRecord>>, ServiceError> {
        let key = Some(record_keys::binding_rule(namespace, id));
        let rule = self.records.get_record::<BindingRuleRecord>(caller, namespace, key, freshness).await?;
        let Some(rule) = rule else { return Ok(None) };
        let exists = self.method_exists(&rule.value, freshness).await?;
        Ok(Some(rule).filter(|_| exists))
    }

    /// Lists the binding rules of one namespace, or of all; with `method` only those of that auth method. Rules of deleted
    /// methods are omitted. Needs `acl:read` in the given namespace.
    pub(crate) async fn list(
        self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        method: Option<&str>,
        freshness: Freshness,
    ) -> Result<RecordList<BindingRuleRecord>, ServiceError> {
        let mut list =
            self.records.list_records::<BindingRuleRecord>(caller, "binding-rule", namespace, freshness).await?;
        if let Some(method) = method {
            list.entries.retain(|rule| rule.value.auth_method == method);
        }
        // Each lookup is a call on etcd, and many rules share a method.
        let mut methods = HashMap::new();
        for rule in &list.entries {
            if let Entry::Vacant(entry) = methods.entry(rule.value.method_id) {
                entry.insert(self.method_exists(&rule.value, freshness).await?);
            }
        }
        list.entries.retain(|rule| methods.get(&rule.value.method_id) == Some(&true));
        Ok(list)
    }

    /// Replaces a binding rule except for its method; fields missing in the draft are cleared. Needs `acl:write`.
    pub(crate) async fn update(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_update(namespace, id, draft)).await
    }

    async fn try_update(
        self,
        namespace: &NamespaceName,
        id: Id,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        let target = self.records.writable_namespace(namespace).await?;
        let key = record_keys::binding_rule(namespace, id);
        let previous = self.records.load_for_update::<BindingRuleRecord>(&key, || format!("binding rule {id}")).await?;
        let current = &previous.value.auth_method;
        if !draft.auth_method.is_empty() && draft.auth_method != *current {
            return Err(InvalidRequest::RuleMethodChanged.into());
        }
        let (method, transaction) = self.load_method(namespace, current).await?;
        // The rule of a deleted method waits for its removal; a new method of that name must not get it.
        if method.id != previous.value.method_id {
            return Err(NotFound::Record(format!("binding rule {id}")).into());
        }
        let rule = validate_draft(draft, id, target.name.clone(), &method)?;
        let transaction = transaction.require_unchanged(&key, previous.modified).put(key, &rule)?;
        self.records.commit_update(&target, transaction, &previous, rule).await
    }

    /// Deletes a binding rule; returns false if it does not exist. Existing tokens keep what it granted. Needs
    /// `acl:write`.
    pub(crate) async fn delete(self, caller: &Caller, namespace: &NamespaceName, id: Id) -> Result<bool, ServiceError> {
        self.records
            .delete_record(caller, namespace, &record_keys::binding_rule(namespace, id), |_: &BindingRuleRecord| {
                Ok(None)
            })
            .await
    }
}

/// Builds and validates the record of a draft for its auth method.
fn validate_draft(
    draft: &BindingRuleDraft,
    id: Id,
    namespace: NamespaceName,
    method: &AuthMethodRecord,
) -> Result<BindingRuleRecord, InvalidRequest> {
    let kind = BindType::parse(&draft.bind_type).ok_or_else(|| InvalidRequest::BindType(truncate(&draft.bind_type)))?;
    if draft.bind_name.is_empty() {
        return Err(InvalidRequest::BindNameMissing);
    }
    let config = MethodConfig::read(method.kind, &method.config);
    let claim_names = config.map_err(|error| InvalidRequest::RuleMethodConfig(error.to_string()))?.claim_names();
    if !draft.selector.is_empty() {
        Selector::parse(&draft.selector, &claim_names).map_err(|error| InvalidRequest::Selector(error.to_string()))?;
    }
    let bind = Binding { kind, name: draft.bind_name.clone(), vars: draft.bind_vars.clone() };
    bind.validate(&claim_names).map_err(|error| InvalidRequest::BindName(error.to_string()))?;
    Ok(BindingRuleRecord {
        id,
        namespace,
        description: draft.description.clone(),
        auth_method: method.name.clone(),
        method_id: method.id,
        selector: draft.selector.clone(),
        bind,
    })
}
