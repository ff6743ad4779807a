//! Login of a person with a stored auth method of the type `oidc`: where the browser goes, and the end of the login.
//!
//! Between the two calls the server keeps nothing. The `state` of the request holds what it needs, sealed, so that another
//! server of the same store can finish the login.

use std::collections::BTreeMap;
use std::sync::Arc;

use keyward_machine::secret_string::SecretString;
use url::Url;

use super::stored_method::{log_outcome, log_refusal};
use super::verifier_cache::Verifier;
use super::{LoginError, LoginMethods, signature};
use crate::model::auth_method::{AcceptedIdentity, AuthMethodRecord, KeySource};
use crate::model::jwt_rules::Claims;
use crate::model::names::NamespaceName;
use crate::model::oidc::{LoginAttempt, OidcError, OidcSettings};
use crate::model::secret::PlainSecret;
use crate::service::caller::LiveToken;
use crate::service::error::ServiceError;
use crate::service::typed_store::Stored;

/// Request to begin a login with a browser.
#[derive(Debug)]
pub(crate) struct AuthUrlRequest {
    /// Name of the method.
    pub method: String,
    /// URI to which the provider sends the browser back.
    pub redirect_uri: String,
    /// Nonce that the end of the login must repeat.
    pub client_nonce: String,
    /// Metadata for the description of the created token.
    pub meta: BTreeMap<String, String>,
}

/// Begin of a login with a browser.
#[derive(Debug)]
pub(crate) struct AuthUrl {
    /// Page of the provider to which the browser goes.
    pub url: Url,
    /// Issuer of the provider, which a redirect may name (RFC 9207).
    pub issuer: String,
    /// The redirect must name it.
    pub names_issuer: bool,
}

/// Request to finish a login with a browser. Nothing in it is verified.
#[derive(Debug)]
pub(crate) struct OidcCallbackRequest {
    /// Name of the method.
    pub method: String,
    /// State of the redirect.
    pub unverified_state: String,
    /// Code of the redirect.
    pub unverified_code: SecretString,
    /// Nonce of the client.
    pub client_nonce: SecretString,
}

/// Longest accepted state in bytes. Ours have less than 4 KiB.
const MAX_STATE: usize = 8 * 1024;

impl LoginMethods {
    /// Begins a login: returns the page to which the browser goes.
    pub(crate) async fn begin_oidc(
        &self,
        namespace: &NamespaceName,
        request: AuthUrlRequest,
    ) -> Result<AuthUrl, LoginError> {
        let method = request.method.clone();
        let outcome = self.try_begin_oidc(namespace, request).await;
        if let Err(error) = &outcome {
            log_refusal(&method, error);
        }
        outcome
    }

    async fn try_begin_oidc(&self, namespace: &NamespaceName, request: AuthUrlRequest) -> Result<AuthUrl, LoginError> {
        let method = self.find_method(namespace, &request.method).await?;
        let verifier = self.verifiers.get_or_build(&method).map_err(LoginError::Service)?;
        let settings = settings(&verifier)?;
        settings.verify_redirect_uri(&request.redirect_uri)?;
        let now = self.service.now();
        let attempt = LoginAttempt::begin(request.redirect_uri, &request.client_nonce, request.meta, now)?;
        let endpoints = verifier.keys.endpoints().await?;
        let plain = serde_json::to_vec(&attempt).map_err(ServiceError::Encode)?;
        let state = self.service.seal_login(&binding(&method, &verifier, settings)?, &plain).await?;
        let url = settings.authorization_url(&endpoints, &attempt, &state);
        Ok(AuthUrl { url, issuer: issuer(&verifier).to_owned(), names_issuer: endpoints.names_issuer })
    }

    /// Finishes a login: exchanges the code for an ID token, and the ID token for an ACL token.
    pub(crate) async fn finish_oidc(
        &self,
        namespace: &NamespaceName,
        request: &OidcCallbackRequest,
    ) -> Result<(LiveToken, PlainSecret), LoginError> {
        log_outcome(&request.method, self.try_finish_oidc(namespace, request).await)
    }

    async fn try_finish_oidc(
        &self,
        namespace: &NamespaceName,
        request: &OidcCallbackRequest,
    ) -> Result<(LiveToken, PlainSecret), LoginError> {
        let method = self.find_method(namespace, &request.method).await?;
        let verifier = self.verifiers.get_or_build(&method).map_err(LoginError::Service)?;
        let settings = settings(&verifier)?;
        if request.unverified_code.expose_secret().is_empty() {
            return Err(LoginError::Missing("Code"));
        }
        let attempt = self.open_attempt(&binding(&method, &verifier, settings)?, &request.unverified_state).await?;
        attempt.verify(request.client_nonce.expose_secret(), self.service.now())?;
        // The method may have changed since the login began.
        settings.verify_redirect_uri(&attempt.redirect_uri)?;
        let endpoints = verifier.keys.endpoints().await?;
        let id_token = verifier
            .token_endpoint
            .exchange(&endpoints.token, &settings.client_id, &request.unverified_code, &attempt)
            .await?;
        let claims: Result<Claims, _> =
            signature::signed_claims(&id_token, &verifier.keys, &verifier.config.algorithms, false).await;
        let claims = claims.map_err(|error| match error {
            // The provider's fault, not the caller's; it may encrypt ID tokens.
            LoginError::Malformed | LoginError::Claims => {
                OidcError::TokenEndpoint("its id_token is no signed JWT".to_owned()).into()
            }
            other => other,
        })?;
        settings.verify_id_token(&claims, &attempt)?;
        let verified = settings.rules.verify(&claims, self.service.now())?;
        self.grant_stored(&method, &verifier, &verified, &attempt.meta).await
    }

    async fn open_attempt(&self, binding: &str, unverified_state: &str) -> Result<LoginAttempt, LoginError> {
        if unverified_state.len() > MAX_STATE {
            return Err(OidcError::State.into());
        }
        let plain = self.service.open_login(binding, unverified_state).await?.ok_or(OidcError::State)?;
        // A newer version may write what this one does not read.
        Ok(serde_json::from_slice(&plain).map_err(|_| OidcError::State)?)
    }
}

/// Text that a login is bound to: a state of another method does not decrypt, nor one of a method that had the name before, or
/// that has another provider since. That one would get the other's code, with its verifier.
fn binding(
    method: &Stored<AuthMethodRecord>,
    verifier: &Verifier,
    settings: &OidcSettings,
) -> Result<String, ServiceError> {
    let record = &method.value;
    let parts = (record.id.to_string(), record.namespace.to_string(), issuer(verifier), &settings.client_id);
    serde_json::to_string(&parts).map_err(ServiceError::Encode)
}

fn issuer(verifier: &Verifier) -> &str {
    match &verifier.config.keys {
        KeySource::Discovery { issuer, .. } => issuer,
        KeySource::Jwks { .. } | KeySource::Fixed(_) => "",
    }
}

fn settings(verifier: &Arc<Verifier>) -> Result<&OidcSettings, OidcError> {
    match &verifier.config.accepts {
        AcceptedIdentity::Oidc(settings) => Ok(settings),
        AcceptedIdentity::Cloud { .. } | AcceptedIdentity::Jwt(_) => Err(OidcError::NotOidc),
    }
}
