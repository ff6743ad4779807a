//! Binding rules.

use serde_json::{Map, Value};

use super::acl_service::Directory;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys;
use super::links::shortened;
use super::lists::Found;
use super::repository::{Changes, Stored, retrying};
use crate::acl::model::auth_method::{AuthMethodRecord, MethodConfig};
use crate::acl::model::binding_rule::{Bind, BindType, BindingRuleRecord};
use crate::acl::model::id::Id;
use crate::acl::model::names::{NamespaceName, is_name};
use crate::acl::model::selector::Selector;
use crate::acl::store::Freshness;

/// What a binding rule is to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BindingRuleDraft {
    /// Free text.
    pub description: String,
    /// The auth method; in an update it may be left out.
    pub auth_method: String,
    /// Which of its logins.
    pub selector: String,
    /// The kind of what they get.
    pub bind_type: String,
    /// Its name.
    pub bind_name: String,
    /// The variables of a templated policy.
    pub bind_vars: Option<Map<String, Value>>,
}

impl Directory {
    /// Makes a binding rule.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, or the draft cannot be a rule of its method.
    pub async fn create_binding_rule(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_create_binding_rule(namespace, draft)).await
    }

    async fn try_create_binding_rule(
        &self,
        namespace: &NamespaceName,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        let (method, changes) = self.held_method(namespace, &draft.auth_method).await?;
        let rule = judged(draft, Id::random(), home.name.clone(), &method)?;
        let key = keys::binding_rule(namespace, rule.id);
        let revision = self.records.commit(home.hold(changes.absent(&key).put(key, &rule)?)).await?;
        Ok(Stored { value: rule.into(), created: revision, modified: revision })
    }

    /// The method of a rule, and changes that happen only while it stays as it is.
    async fn held_method(
        &self,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<(AuthMethodRecord, Changes), ServiceError> {
        if name.is_empty() {
            return Err(ServiceError::Invalid("Invalid Binding Rule: no AuthMethod is set".to_owned()));
        }
        let key = keys::auth_method(namespace, name);
        let found = if is_name(name) {
            self.records.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?
        } else {
            None
        };
        let method = found.ok_or_else(|| {
            ServiceError::Invalid(format!("Invalid Binding Rule: cannot find auth method {:?}", shortened(name)))
        })?;
        Ok(((*method.value).clone(), Changes::default().unchanged(&key, method.modified)))
    }

    /// The binding rule of that id; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn binding_rule(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<BindingRuleRecord>>, ServiceError> {
        self.seen(caller, namespace, Some(keys::binding_rule(namespace, id)), freshness).await
    }

    /// Binding rules of one namespace, or of all; with `method` those of the auth method of that name.
    ///
    /// # Errors
    /// The caller lacks `acl:read` in the one namespace, or there is none of that name.
    pub async fn binding_rules(
        &self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        method: Option<&str>,
        freshness: Freshness,
    ) -> Result<Found<BindingRuleRecord>, ServiceError> {
        let mut found = self.found::<BindingRuleRecord>(caller, "binding-rule", namespace, freshness).await?;
        if let Some(method) = method {
            found.entries.retain(|rule| rule.value.auth_method == method);
        }
        Ok(found)
    }

    /// Replaces what a binding rule is, but for its method; what the draft leaves out is cleared.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, there is no such rule, or the draft cannot be a rule of its method.
    pub async fn update_binding_rule(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_update_binding_rule(namespace, id, draft)).await
    }

    async fn try_update_binding_rule(
        &self,
        namespace: &NamespaceName,
        id: Id,
        draft: &BindingRuleDraft,
    ) -> Result<Stored<BindingRuleRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        let key = keys::binding_rule(namespace, id);
        let before = self.to_change::<BindingRuleRecord>(&key, || format!("binding rule {id}")).await?;
        let kept = &before.value.auth_method;
        if !draft.auth_method.is_empty() && draft.auth_method != *kept {
            let text = "Invalid Binding Rule: the AuthMethod of a binding rule is immutable";
            return Err(ServiceError::Invalid(text.to_owned()));
        }
        let (method, changes) = self.held_method(namespace, kept).await?;
        let rule = judged(draft, id, home.name.clone(), &method)?;
        let changes = changes.unchanged(&key, before.modified).put(key, &rule)?;
        self.change(&home, changes, &before, rule).await
    }

    /// Deletes a binding rule; false if there is none. Tokens that it gave something keep it.
    ///
    /// # Errors
    /// The caller lacks `acl:write`.
    pub async fn delete_binding_rule(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
    ) -> Result<bool, ServiceError> {
        self.remove(caller, namespace, &keys::binding_rule(namespace, id), |_: &BindingRuleRecord| Ok(None)).await
    }
}

/// The rule that a draft makes of a method.
fn judged(
    draft: &BindingRuleDraft,
    id: Id,
    namespace: NamespaceName,
    method: &AuthMethodRecord,
) -> Result<BindingRuleRecord, ServiceError> {
    let invalid = |reason: String| ServiceError::Invalid(format!("Invalid Binding Rule: {reason}"));
    let kind = BindType::named(&draft.bind_type)
        .ok_or_else(|| invalid(format!("unknown BindType {:?}", shortened(&draft.bind_type))))?;
    if draft.bind_name.is_empty() {
        return Err(invalid("no BindName is set".to_owned()));
    }
    let config = MethodConfig::read(method.kind, &method.config);
    let blank = config.map_err(|reason| invalid(format!("its auth method cannot be used: {reason}")))?.blank();
    if !draft.selector.is_empty() {
        Selector::parse(&draft.selector, &blank).map_err(|reason| invalid(format!("invalid Selector: {reason}")))?;
    }
    let bind = Bind { kind, name: draft.bind_name.clone(), vars: draft.bind_vars.clone() };
    bind.judge(&blank).map_err(|reason| invalid(format!("invalid BindName or BindVars: {reason}")))?;
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
