//! Auth methods: drafts, their validation, and deletion with all that depends on a method.

mod batch_budget;
mod removal;

use keyward_telemetry::error_chain::format_chain;
use serde_json::{Map, Value};

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::issuer_keys::pem_keys;
use super::links::truncate;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::records::RecordKind;
use super::rejection::{Conflict, InvalidRequest};
use super::transaction::{Transaction, retry_on_conflict};
use crate::model::auth_method::{
    AuthMethodRecord, KeySource, Locality, MethodConfig, MethodType, NamespaceRule, TokenNameFormat, max_token_ttl,
};
use crate::model::binding_rule::bind_namespace;
use crate::model::go_duration::GoDuration;
use crate::model::id::Id;
use crate::model::names::{NamespaceName, is_name};
use crate::model::selector::Selector;
use crate::model::verified_claims::VerifiedClaims;
use crate::store::{Freshness, Key, Revision};
use removal::Removal;

/// Fields of an auth method as a request gives them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AuthMethodDraft {
    /// Name, unique within the namespace; may be empty in an update.
    pub name: String,
    /// Type, `cloud`, `jwt` or `oidc`; may be empty in an update.
    pub kind: String,
    /// Display name.
    pub display_name: String,
    /// Description.
    pub description: String,
    /// Lifetime of its tokens; zero for no expiration.
    pub max_token_ttl: GoDuration,
    /// Locality of its tokens, `local` or `global`; empty for the default.
    pub locality: String,
    /// Rules for the namespace of its tokens.
    pub namespace_rules: Vec<NamespaceRule>,
    /// Description of its tokens, with placeholders; empty for the usual one.
    pub token_name_format: String,
    /// Configuration of the type.
    pub config: Map<String, Value>,
}

impl RecordKind for AuthMethodRecord {
    const KEY: &'static str = "auth-method";
    const NAME: &'static str = "auth method";
    type Id = str;
    type Draft = AuthMethodDraft;

    fn id(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &NamespaceName {
        &self.namespace
    }

    fn describe(name: &str) -> String {
        format!("auth method {name:?}")
    }

    fn key(namespace: &NamespaceName, name: &str) -> Result<Key, InvalidRequest> {
        validate_name(name)?;
        Ok(record_keys::auth_method(namespace, name))
    }

    fn claim(&self, _is_new: bool) -> Option<(Key, Conflict)> {
        let key = record_keys::auth_method(&self.namespace, &self.name);
        Some((key, Conflict::MethodName(self.name.clone())))
    }

    /// An update keeps the type.
    async fn build(
        _records: &NamespacedRecords,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
        previous: Option<&Self>,
    ) -> Result<(Self, Transaction), ServiceError> {
        Ok((validate_draft(draft, namespace.clone(), previous)?, Transaction::default()))
    }
}

/// Deletion of auth methods with what depends on them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuthMethods<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the deletion of auth methods.
    pub(crate) fn auth_methods(&self) -> AuthMethods<'_> {
        AuthMethods { service: self }
    }
}

impl AuthMethods<'_> {
    /// Deletes an auth method; returns false if it does not exist. Its tokens are invalid at once. They and its binding
    /// rules are deleted in this call up to `INLINE_BATCHES` batches, the rest in the background. Needs `acl:write`.
    pub(crate) async fn delete(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        let Some((removal, written)) = retry_on_conflict(|| self.try_delete(namespace, name)).await? else {
            return Ok(false);
        };
        if let Err(error) = self.delete_dependents(&removal, written, removal::INLINE_BATCHES).await {
            // The method itself is deleted; the background task deletes the rest.
            tracing::warn!(
                event = "acl.removal.failed",
                method = name,
                error = format_chain(&error),
                "cannot delete all tokens and rules of a deleted auth method, retrying in the background"
            );
        }
        Ok(true)
    }

    /// Deletes a method; returns the record of its removal with its revision.
    async fn try_delete(
        self,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<Option<(Removal, Revision)>, ServiceError> {
        let target = self.service.records.writable_namespace(namespace).await?;
        let Ok(key) = AuthMethodRecord::key(namespace, name) else { return Ok(None) };
        let Some(previous) = self.service.typed_store.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?
        else {
            return Ok(None);
        };
        // In the transaction of the deletion: a crash after it must not leave tokens that nobody deletes.
        let removal = Removal { method: previous.value.id, namespace: target.name.clone() };
        let transaction = Transaction::default()
            .require_unchanged(&key, previous.modified)
            .delete(key)
            .put(record_keys::removal("auth-method", &removal.method.to_string()), &removal)?;
        let written = self.service.typed_store.commit(target.require_unchanged(transaction)).await?;
        Ok(Some((removal, written)))
    }
}

fn validate_name(name: &str) -> Result<(), InvalidRequest> {
    if name.is_empty() {
        return Err(InvalidRequest::MethodNameMissing);
    }
    if !is_name(name) {
        return Err(InvalidRequest::MethodName(truncate(name)));
    }
    Ok(())
}

/// Builds the record of a draft. An update may omit the name and the type of the `previous` record.
fn validate_draft(
    draft: &AuthMethodDraft,
    namespace: NamespaceName,
    previous: Option<&AuthMethodRecord>,
) -> Result<AuthMethodRecord, InvalidRequest> {
    let name = previous.map_or(&draft.name, |previous| &previous.name);
    validate_name(name)?;
    let current = previous.map(|previous| previous.kind);
    let stated = Some(draft.kind.as_str()).filter(|kind| !kind.is_empty());
    let kind = match (stated, current) {
        (None, Some(current)) => current,
        (None, None) => return Err(InvalidRequest::MethodTypeMissing),
        (Some(stated), current) => {
            let kind = MethodType::parse(stated).ok_or_else(|| InvalidRequest::MethodType(truncate(stated)))?;
            if current.is_some_and(|current| current != kind) {
                return Err(InvalidRequest::MethodTypeChanged);
            }
            kind
        }
    };
    let unknown_locality = || InvalidRequest::TokenLocality(truncate(&draft.locality));
    let locality = match draft.locality.as_str() {
        "" => None,
        stated => Some(Locality::parse(stated).ok_or_else(unknown_locality)?),
    };
    let max_token_ttl =
        max_token_ttl(draft.max_token_ttl).map_err(|error| InvalidRequest::MethodConfig(error.to_string()))?;
    let config =
        MethodConfig::read(kind, &draft.config).map_err(|error| InvalidRequest::MethodConfig(error.to_string()))?;
    if let KeySource::Fixed(keys) = &config.keys {
        for (index, key) in keys.iter().enumerate() {
            pem_keys(key).map_err(|error| InvalidRequest::ValidationKey { index, reason: error.to_string() })?;
        }
    }
    let claim_names = config.claim_names();
    validate_namespace_rules(&draft.namespace_rules, &namespace, &claim_names)?;
    TokenNameFormat::parse(&draft.token_name_format, &claim_names)
        .map_err(|error| InvalidRequest::TokenNameFormat(error.to_string()))?;
    Ok(AuthMethodRecord {
        id: previous.map_or_else(Id::random, |previous| previous.id),
        name: name.clone(),
        namespace,
        kind,
        display_name: draft.display_name.clone(),
        description: draft.description.clone(),
        max_token_ttl,
        locality,
        namespace_rules: draft.namespace_rules.clone(),
        token_name_format: draft.token_name_format.clone(),
        config: draft.config.clone(),
    })
}

/// Most namespace rules of a method: each login evaluates them.
const MAX_NAMESPACE_RULES: usize = 64;

fn validate_namespace_rules(
    rules: &[NamespaceRule],
    namespace: &NamespaceName,
    claim_names: &VerifiedClaims,
) -> Result<(), InvalidRequest> {
    let fail = |index: usize, reason: String| Err(InvalidRequest::NamespaceRule { index, reason });
    if !rules.is_empty() && !namespace.is_default() {
        return fail(0, "only an auth method in the namespace \"default\" can have namespace rules".to_owned());
    }
    if rules.len() > MAX_NAMESPACE_RULES {
        return fail(MAX_NAMESPACE_RULES, format!("at most {MAX_NAMESPACE_RULES} rules are allowed"));
    }
    let example = claim_names.with_example_values();
    for (index, rule) in rules.iter().enumerate() {
        if !rule.selector.is_empty()
            && let Err(error) = Selector::parse(&rule.selector, claim_names)
        {
            return fail(index, format!("invalid Selector: {error}"));
        }
        if let Err(error) = bind_namespace(&rule.bind_namespace, &example) {
            return fail(index, format!("invalid BindNamespace: {error}"));
        }
    }
    Ok(())
}
