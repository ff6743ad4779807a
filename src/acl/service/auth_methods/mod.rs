//! Auth methods.

mod removal;

use serde_json::{Map, Value};

use super::acl_service::Directory;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::issuer_keys::pem_keys;
use super::keys;
use super::links::shortened;
use super::lists::Found;
use super::repository::{Changes, Stored, retrying};
use crate::acl::model::auth_method::{AuthMethodRecord, KeySource, Locality, MethodConfig, MethodType, max_token_ttl};
use crate::acl::model::go_duration::GoDuration;
use crate::acl::model::id::Id;
use crate::acl::model::names::{NamespaceName, is_name};
use crate::acl::store::Freshness;
use removal::Removal;

/// What an auth method is to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuthMethodDraft {
    /// Its name.
    pub name: String,
    /// Its type; in an update it may be left out.
    pub kind: String,
    /// Its name for people.
    pub display_name: String,
    /// Free text.
    pub description: String,
    /// How long its tokens live; zero for no end.
    pub max_token_ttl: GoDuration,
    /// Where its tokens count; not said if empty.
    pub locality: String,
    /// What its type asks for.
    pub config: Map<String, Value>,
}

impl Directory {
    /// Makes an auth method.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, the draft cannot be a method, or its name is taken.
    pub async fn create_auth_method(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_create_auth_method(namespace, draft)).await
    }

    async fn try_create_auth_method(
        &self,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        let method = judged(draft, Id::random(), home.name.clone(), None)?;
        let key = keys::auth_method(namespace, &method.name);
        let taken = || format!("Invalid Auth Method: An auth method with Name {:?} already exists", method.name);
        self.free(&key, taken).await?;
        let changes = Changes::default().absent(&key).put(key, &method)?;
        self.make(&home, changes, method).await
    }

    /// The auth method of that name; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn auth_method(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<AuthMethodRecord>>, ServiceError> {
        let key = is_name(name).then(|| keys::auth_method(namespace, name));
        self.seen(caller, namespace, key, freshness).await
    }

    /// Auth methods of one namespace, or of all.
    ///
    /// # Errors
    /// The caller lacks `acl:read` in the one namespace, or there is none of that name.
    pub async fn auth_methods(
        &self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<Found<AuthMethodRecord>, ServiceError> {
        self.found(caller, "auth-method", namespace, freshness).await
    }

    /// Replaces what an auth method is, but for its name and type; what the draft leaves out is cleared.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, there is no such method, or the draft cannot be this method.
    pub async fn update_auth_method(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_update_auth_method(namespace, draft)).await
    }

    async fn try_update_auth_method(
        &self,
        namespace: &NamespaceName,
        draft: &AuthMethodDraft,
    ) -> Result<Stored<AuthMethodRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        named(&draft.name)?;
        let key = keys::auth_method(namespace, &draft.name);
        let before = self.to_change::<AuthMethodRecord>(&key, || format!("auth method {:?}", draft.name)).await?;
        let method = judged(draft, before.value.id, home.name.clone(), Some(before.value.kind))?;
        let changes = Changes::default().unchanged(&key, before.modified).put(key, &method)?;
        self.change(&home, changes, &before, method).await
    }

    /// Deletes an auth method; false if there is none. From then on its tokens open nothing; they and its binding rules are
    /// removed then, in the background where they are many.
    ///
    /// # Errors
    /// The caller lacks `acl:write`.
    pub async fn delete_auth_method(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        let Some(removal) = retrying(|| self.try_delete_auth_method(namespace, name)).await? else { return Ok(false) };
        if let Err(error) = self.remove_rest(&removal, removal::AT_ONCE).await {
            // It is deleted. What is left is taken up by the background.
            tracing::warn!(event = "acl.removal.failed", method = name, %error, "some of a deleted method is left");
        }
        Ok(true)
    }

    async fn try_delete_auth_method(
        &self,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<Option<Removal>, ServiceError> {
        let home = self.home(namespace).await?;
        if !is_name(name) {
            return Ok(None);
        }
        let key = keys::auth_method(namespace, name);
        let Some(before) = self.records.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await? else {
            return Ok(None);
        };
        let removal = Removal { method: before.value.id, namespace: home.name.clone() };
        let changes = Changes::default()
            .unchanged(&key, before.modified)
            .delete(key)
            .put(keys::removal("auth-method", &removal.method.to_string()), &removal)?;
        self.records.commit(home.hold(changes)).await?;
        Ok(Some(removal))
    }
}

fn named(name: &str) -> Result<(), ServiceError> {
    if name.is_empty() {
        return Err(ServiceError::Invalid("Invalid Auth Method: no Name is set".to_owned()));
    }
    if !is_name(name) {
        let text = "Invalid Auth Method: invalid Name. Only alphanumeric characters, '-' and '_' are allowed";
        return Err(ServiceError::Invalid(format!("{text} ({:?})", shortened(name))));
    }
    Ok(())
}

/// The method that a draft makes; `kept` is the type that it has already.
fn judged(
    draft: &AuthMethodDraft,
    id: Id,
    namespace: NamespaceName,
    kept: Option<MethodType>,
) -> Result<AuthMethodRecord, ServiceError> {
    let invalid = |reason: String| ServiceError::Invalid(format!("Invalid Auth Method: {reason}"));
    named(&draft.name)?;
    let stated = Some(draft.kind.as_str()).filter(|kind| !kind.is_empty());
    let kind = match (stated, kept) {
        (None, Some(kept)) => kept,
        (None, None) => return Err(invalid("no Type is set: it is \"cloud\" or \"jwt\"".to_owned())),
        (Some(stated), kept) => {
            let kind = MethodType::named(stated).ok_or_else(|| {
                invalid(format!("Type {:?} is unknown: it is \"cloud\" or \"jwt\"", shortened(stated)))
            })?;
            if kept.is_some_and(|kept| kept != kind) {
                return Err(ServiceError::Invalid("Changing an Auth Method's Type is not permitted".to_owned()));
            }
            kind
        }
    };
    let unknown_locality =
        || invalid(format!("TokenLocality {:?} is neither \"local\" nor \"global\"", shortened(&draft.locality)));
    let locality = match draft.locality.as_str() {
        "" => None,
        stated => Some(Locality::named(stated).ok_or_else(unknown_locality)?),
    };
    let max_token_ttl = max_token_ttl(draft.max_token_ttl).map_err(|reason| invalid(reason.to_string()))?;
    let config = MethodConfig::read(kind, &draft.config).map_err(|reason| invalid(reason.to_string()))?;
    if let KeySource::Fixed(keys) = &config.keys {
        for (place, key) in keys.iter().enumerate() {
            pem_keys(key).map_err(|reason| invalid(format!("Config JWTValidationPubKeys[{place}] {reason}")))?;
        }
    }
    Ok(AuthMethodRecord {
        id,
        name: draft.name.clone(),
        namespace,
        kind,
        display_name: draft.display_name.clone(),
        description: draft.description.clone(),
        max_token_ttl,
        locality,
        config: draft.config.clone(),
    })
}
