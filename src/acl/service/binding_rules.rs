//! Binding rules: drafts, their validation for the auth method, and the rules of deleted methods.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::error::ServiceError;
use super::links::truncate;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::records::{RecordKind, record_not_found};
use super::rejection::InvalidRequest;
use super::transaction::Transaction;
use super::typed_store::Stored;
use crate::model::auth_method::{AuthMethodRecord, MethodConfig};
use crate::model::binding_rule::{BindType, Binding, BindingRuleRecord, NewBindingRule};
use crate::model::id::Id;
use crate::model::names::{NamespaceName, is_name};
use crate::model::selector::Selector;
use crate::store::{Freshness, Key};

impl RecordKind for BindingRuleRecord {
    const KEY: &'static str = "binding-rule";
    const NAME: &'static str = "binding rule";
    type Id = Id;
    type Draft = NewBindingRule;

    fn id(&self) -> &Id {
        &self.id
    }

    fn namespace(&self) -> &NamespaceName {
        &self.namespace
    }

    fn key(namespace: &NamespaceName, id: &Id) -> Result<Key, InvalidRequest> {
        Ok(record_keys::binding_rule(namespace, *id))
    }

    /// An update keeps the auth method. The write requires that the method is unchanged.
    async fn build(
        records: &NamespacedRecords,
        namespace: &NamespaceName,
        draft: &NewBindingRule,
        previous: Option<&Self>,
    ) -> Result<(Self, Transaction), ServiceError> {
        let name = previous.map_or(&draft.auth_method, |old| &old.auth_method);
        if !draft.auth_method.is_empty() && draft.auth_method != *name {
            return Err(InvalidRequest::RuleMethodChanged.into());
        }
        let (method, transaction) = load_method(records, namespace, name).await?;
        // The rule of a deleted method waits for its removal; a new method of that name must not get it.
        if let Some(old) = previous.filter(|old| old.method_id != method.id) {
            return Err(record_not_found::<Self>(&old.id));
        }
        let id = previous.map_or_else(Id::random, |old| old.id);
        Ok((validate_draft(draft, id, namespace.clone(), &method)?, transaction))
    }

    /// Returns whether the auth method of the rule still exists with the same id. The rules of a deleted method
    /// are deleted after it, and can remain in the store for a while.
    async fn exists(&self, records: &NamespacedRecords, freshness: Freshness) -> Result<bool, ServiceError> {
        let key = record_keys::auth_method(&self.namespace, &self.auth_method);
        match records.typed_store.get::<AuthMethodRecord>(&key, freshness).await {
            Ok(method) => Ok(method.is_some_and(|method| method.value.id == self.method_id)),
            // Unknown whether the method exists. The rule grants nothing, but it is shown and can be deleted.
            Err(error) if records.typed_store.skip_unreadable(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn retain_existing(
        entries: &mut Vec<Stored<Self>>,
        records: &NamespacedRecords,
        freshness: Freshness,
    ) -> Result<(), ServiceError> {
        // Each lookup is a call on etcd, and many rules share a method.
        let mut methods = HashMap::new();
        for rule in &*entries {
            if let Entry::Vacant(entry) = methods.entry(rule.value.method_id) {
                entry.insert(rule.value.exists(records, freshness).await?);
            }
        }
        entries.retain(|rule| methods.get(&rule.value.method_id) == Some(&true));
        Ok(())
    }

    /// Selects the rules of an auth method.
    fn filter(text: &str) -> impl Fn(&Self) -> bool {
        move |rule: &Self| rule.auth_method == text
    }
}

/// Returns the auth method of a rule, and a transaction with the precondition that it is unchanged.
async fn load_method(
    records: &NamespacedRecords,
    namespace: &NamespaceName,
    name: &str,
) -> Result<(Arc<AuthMethodRecord>, Transaction), ServiceError> {
    if name.is_empty() {
        return Err(InvalidRequest::RuleMethodMissing.into());
    }
    let key = record_keys::auth_method(namespace, name);
    let method = if is_name(name) {
        records.typed_store.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?
    } else {
        None
    };
    let method = method.ok_or_else(|| InvalidRequest::RuleMethod(truncate(name)))?;
    Ok((method.value, Transaction::default().require_unchanged(&key, method.modified)))
}

/// Builds and validates the record of a draft for its auth method.
fn validate_draft(
    draft: &NewBindingRule,
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
