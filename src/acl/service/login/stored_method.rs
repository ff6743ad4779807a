//! Login with a stored auth method.

use std::collections::BTreeMap;

use keyward_machine::secret_string::SecretString;

use super::bind::Grant;
use super::verifier_cache::Verifier;
use super::{LoginError, LoginMethods, signature};
use crate::model::auth_method::{AcceptedIdentity, AuthMethodRecord, TokenNameFormat};
use crate::model::azure_identity::{SignedClaims, verify_identity};
use crate::model::id::Id;
use crate::model::jwt_rules::Claims;
use crate::model::names::{NamespaceName, is_name};
use crate::model::oidc::OidcError;
use crate::model::secret::PlainSecret;
use crate::model::token::LoginOrigin;
use crate::model::verified_claims::VerifiedClaims;
use crate::service::caller::LiveToken;
use crate::service::error::ServiceError;
use crate::service::links::truncate;
use crate::service::record_keys;
use crate::service::rejection::{Forbidden, NotFound};
use crate::service::tokens::ValidatedToken;
use crate::service::transaction::{Transaction, retry_on_conflict};
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// Login request for a stored method. Nothing in it is verified.
#[derive(Debug)]
pub(crate) struct StoredLoginRequest {
    /// Name of the method.
    pub method: String,
    /// Token of the identity.
    pub unverified_jwt: SecretString,
    /// Metadata for the description of the created token.
    pub meta: BTreeMap<String, String>,
}

impl LoginMethods {
    /// Logs in with a stored method of a namespace.
    pub(crate) async fn login_stored(
        &self,
        namespace: &NamespaceName,
        request: &StoredLoginRequest,
    ) -> Result<(LiveToken, PlainSecret), LoginError> {
        log_outcome(&request.method, self.try_login_stored(namespace, request).await)
    }

    async fn try_login_stored(
        &self,
        namespace: &NamespaceName,
        request: &StoredLoginRequest,
    ) -> Result<(LiveToken, PlainSecret), LoginError> {
        let method = self.find_method(namespace, &request.method).await?;
        let verifier = self.verifiers.get_or_build(&method).map_err(LoginError::Service)?;
        let verified = self.verify_claims(&verifier, &request.unverified_jwt).await?;
        self.grant_stored(&method, &verifier, &verified, &request.meta).await
    }

    /// Returns a stored method of a namespace.
    pub(super) async fn find_method(
        &self,
        namespace: &NamespaceName,
        name: &str,
    ) -> Result<Stored<AuthMethodRecord>, LoginError> {
        let key = record_keys::auth_method(namespace, name);
        // Other texts are no segment of a store key: with a slash they would name another record.
        let method = if is_name(name) {
            self.service.typed_store.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?
        } else {
            None
        };
        method.ok_or_else(|| unknown(name))
    }

    /// Creates the token of a login whose claims are verified.
    pub(super) async fn grant_stored(
        &self,
        method: &Stored<AuthMethodRecord>,
        verifier: &Verifier,
        verified: &VerifiedClaims,
        meta: &BTreeMap<String, String>,
    ) -> Result<(LiveToken, PlainSecret), LoginError> {
        let record = &method.value;
        let grant = Grant::evaluate(&self.service, record, &verifier.config.claim_names(), verified)
            .await?
            .ok_or(LoginError::NoBinding)?;
        let secret = PlainSecret::random();
        let inserted = retry_on_conflict(|| self.insert_token(method, &grant, verified, meta, &secret)).await;
        match inserted {
            Ok(live) => Ok((live, secret)),
            // The method or its namespace was deleted during the login.
            Err(ServiceError::NotFound(_)) => Err(unknown(&record.name)),
            Err(error) => Err(error.into()),
        }
    }

    async fn verify_claims(
        &self,
        verifier: &Verifier,
        unverified_jwt: &SecretString,
    ) -> Result<VerifiedClaims, LoginError> {
        let config = &verifier.config;
        let now = self.service.now();
        match &config.accepts {
            AcceptedIdentity::Cloud { issuer, audiences } => {
                let claims: SignedClaims =
                    signature::signed_claims(unverified_jwt, &verifier.keys, &config.algorithms, true).await?;
                let mut verified = config.claim_names();
                let facts = verify_identity(&claims, issuer, audiences, now)?.facts();
                verified.values.extend(facts.into_iter().map(|(name, value)| (name, Some(value))));
                Ok(verified)
            }
            AcceptedIdentity::Jwt(rules) => {
                let claims: Claims =
                    signature::signed_claims(unverified_jwt, &verifier.keys, &config.algorithms, false).await?;
                Ok(rules.verify(&claims, now)?)
            }
            // An ID token that somebody else has got shows no login here.
            AcceptedIdentity::Oidc(_) => Err(OidcError::NotBearer.into()),
        }
    }

    async fn insert_token(
        &self,
        method: &Stored<AuthMethodRecord>,
        grant: &Grant,
        verified: &VerifiedClaims,
        meta: &BTreeMap<String, String>,
        secret: &PlainSecret,
    ) -> Result<LiveToken, ServiceError> {
        let record = &method.value;
        let key = record_keys::auth_method(&record.namespace, &record.name);
        let current = self.service.typed_store.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?;
        match current {
            None => return Err(NotFound::DeletedMethod(record.name.clone()).into()),
            // The rules of the method may have changed; the client must log in again.
            Some(now) if now.modified != method.modified => return Err(ServiceError::Contention),
            Some(_) => {}
        }
        let target = self.service.records.writable_namespace(&grant.namespace).await?;
        let now = self.service.now();
        let new = ValidatedToken {
            accessor: Id::random(),
            secret: secret.clone(),
            description: format_description(record, verified, meta)?,
            links: grant.links.clone(),
            roles: grant.roles.clone(),
            local: record.makes_local_tokens(),
            create_time: now,
            expiration_time: record.max_token_ttl.map(|ttl| now.after(ttl)),
            login: Some(LoginOrigin {
                auth_method: record.name.clone(),
                method_id: Some(record.id),
                namespace: record.namespace.clone(),
                role: None,
                facts: identity_facts(verified),
            }),
        };
        self.service
            .token_records()
            .insert(&target, new, Transaction::default().require_unchanged(&key, method.modified))
            .await
    }
}

impl LoginMethods {
    /// Deletes a token that a login created; refuses any other.
    pub(crate) async fn log_out(&self, live: &LiveToken) -> Result<(), ServiceError> {
        if live.token.value.immutable().login.is_none() {
            return Err(Forbidden::Logout.into());
        }
        self.service.token_records().destroy(&live.token.value).await
    }
}

/// Logs a login by a stored method.
pub(super) fn log_outcome(
    method: &str,
    outcome: Result<(LiveToken, PlainSecret), LoginError>,
) -> Result<(LiveToken, PlainSecret), LoginError> {
    match &outcome {
        Ok((live, _)) => {
            let immutable = live.token.value.immutable();
            let accessor = immutable.accessor_id.to_string();
            let namespace = immutable.namespace.as_str();
            tracing::info!(event = "acl.login.ok", method, namespace, accessor, "logged in");
        }
        Err(error) => log_refusal(method, error),
    }
    outcome
}

/// Logs a refused login by a stored method.
pub(super) fn log_refusal(method: &str, error: &LoginError) {
    // The API logs failures of the service.
    if !matches!(error, LoginError::Service(_)) {
        let method = truncate(method);
        tracing::warn!(event = "acl.login.refused", method, error = error.to_string(), "refused a login");
    }
}

fn unknown(method: &str) -> LoginError {
    LoginError::Unknown(method.chars().take(128).collect())
}

/// Description of a token whose method has no format for it.
const DESCRIPTION: &str = "token created via login";

fn format_description(
    method: &AuthMethodRecord,
    verified: &VerifiedClaims,
    meta: &BTreeMap<String, String>,
) -> Result<String, ServiceError> {
    // A format that no longer fits the claims, in a restored record, must not prevent logins.
    if !method.token_name_format.is_empty()
        && let Ok(format) = TokenNameFormat::parse(&method.token_name_format, verified)
    {
        return Ok(format.format(&method.name, verified, meta));
    }
    if meta.is_empty() {
        return Ok(DESCRIPTION.to_owned());
    }
    let meta = serde_json::to_string(meta).map_err(ServiceError::Encode)?;
    Ok(format!("{DESCRIPTION}: {meta}"))
}

/// Most characters of one identity fact on a token.
/// The issuer decides how long a claim is, and each token of the method has a copy.
const MAX_FACT_CHARS: usize = 256;

/// Identity facts copied onto the token at login.
fn identity_facts(verified: &VerifiedClaims) -> BTreeMap<String, String> {
    let values = verified.values.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let values = values.filter(|(_, value)| !value.is_empty());
    values.map(|(name, value)| (name.clone(), value.chars().take(MAX_FACT_CHARS).collect())).collect()
}
