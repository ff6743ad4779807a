//! Operations on auth methods.

mod batch_budget;
mod removal;

use keyward_telemetry::error_chain::format_chain;
use serde_json::{Map, Value};

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::issuer_keys::pem_keys;
use super::links::truncate;
use super::lists::RecordList;
use super::record_keys;
use super::rejection::{Conflict, InvalidRequest};
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::Stored;
use crate::model::auth_method::{
    AuthMethodRecord, KeySource, Locality, MethodConfig, MethodType, NamespaceRule, TokenNameFormat, max_token_ttl,
};
use crate::model::binding_rule::bind_namespace;
use crate::model::go_duration::GoDuration;
use crate::model::id::Id;
use crate::model::names::{NamespaceName, is_name};
use crate::model::selector::Selector;
use crate::model::verified_claims::VerifiedClaims;
use crate::store::{Freshness, Revision};
use removal::Removal;

/// Fields of an auth method as a request gives them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AuthMethodDraft {
    /// Name, unique within the namespace.
    pub name: String,
    /// Type, `cloud` or `jwt`; may be empty in an update.
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

/// Operations on auth methods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuthMethods<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the operations on auth methods.
    pub(crate) fn auth_methods(&self) -> AuthMethods<'_> {
        AuthMethods { service: self }
    }
}

impl AuthMethods<'_> {
    /// Creates an auth method. Needs `acl:write`.
    pub(crate) async fn create(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_create(namespace, draft)).await
    }

    async fn try_create(
        self,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        let target = self.service.records.writable_namespace(namespace).await?;
        let method = validate_draft(draft, Id::random(), target.name.clone(), None)?;
        let key = record_keys::auth_method(namespace, &method.name);
        let conflict = || Conflict::MethodName(method.name.clone());
        self.service.records.require_absent(&key, conflict).await?;
        let transaction = Transaction::default().require_absent(&key).put(key, &method)?;
        self.service.records.commit_new(&target, transaction, method).await
    }

    /// Returns the auth method; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<AuthMethodRecord>>, ServiceError> {
        let key = is_name(name).then(|| record_keys::auth_method(namespace, name));
        self.service.records.get_record(caller, namespace, key, freshness).await
    }

    /// Lists the auth methods of one namespace, or of all. Needs `acl:read` in the given namespace.
    pub(crate) async fn list(
        self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<RecordList<AuthMethodRecord>, ServiceError> {
        self.service.records.list_records(caller, "auth-method", namespace, freshness).await
    }

    /// Replaces an auth method except for its name and type; fields missing in the draft are cleared. Needs
    /// `acl:write`.
    pub(crate) async fn update(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_update(namespace, draft)).await
    }

    async fn try_update(
        self,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        let target = self.service.records.writable_namespace(namespace).await?;
        validate_name(&draft.name)?;
        let key = record_keys::auth_method(namespace, &draft.name);
        let previous = self
            .service
            .records
            .load_for_update::<AuthMethodRecord>(&key, || format!("auth method {:?}", draft.name))
            .await?;
        let method = validate_draft(draft, previous.value.id, target.name.clone(), Some(previous.value.kind))?;
        let transaction = Transaction::default().require_unchanged(&key, previous.modified).put(key, &method)?;
        self.service.records.commit_update(&target, transaction, &previous, method).await
    }

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
        if !is_name(name) {
            return Ok(None);
        }
        let key = record_keys::auth_method(namespace, name);
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

/// Builds the record of a draft; `current` is the type of the existing method, which an update may omit.
fn validate_draft(
    draft: &AuthMethodDraft,
    id: Id,
    namespace: NamespaceName,
    current: Option<MethodType>,
) -> Result<AuthMethodRecord, InvalidRequest> {
    validate_name(&draft.name)?;
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
        id,
        name: draft.name.clone(),
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
