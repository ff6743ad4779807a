//! Handlers of `POST /v1/acl/oidc/auth-url` and `POST /v1/acl/oidc/callback`: login of a person with a browser.

use keyward_machine::secret_string::SecretString;
use serde::Serialize;

use super::error::ApiError;
use super::login::{read_login, take_meta};
use super::request::{ApiRequest, take_namespace};
use super::response::ApiResponse;
use super::state::ApiState;
use super::tokens;
use crate::service::login::{AuthUrlRequest, OidcCallbackRequest};
use crate::store::Freshness;

/// Begin of a login. Consul has `AuthURL` alone; its clients ignore the rest.
#[derive(Debug, Serialize)]
struct AuthUrlView<'a> {
    #[serde(rename = "AuthURL")]
    auth_url: &'a str,
    #[serde(rename = "Issuer")]
    issuer: &'a str,
    #[serde(rename = "IssuerRequired", skip_serializing_if = "std::ops::Not::not")]
    issuer_required: bool,
}

/// Begins a login. A token in the request is ignored.
pub(super) async fn begin(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let mut fields = read_login(request).await?;
    let body_namespace = take_namespace(&mut fields)?;
    let method = fields.string("AuthMethod")?.unwrap_or_default();
    let redirect_uri = fields.string("RedirectURI")?.unwrap_or_default();
    let client_nonce = fields.string("ClientNonce")?.unwrap_or_default();
    let meta = take_meta(&mut fields)?;
    fields.finish()?;
    let namespace = request.method_namespace(body_namespace.as_deref())?;
    let begin = AuthUrlRequest { method, redirect_uri, client_nonce, meta };
    let begun = state.methods.begin_oidc(&namespace, begin).await.map_err(ApiError::Login)?;
    let view = AuthUrlView { auth_url: begun.url.as_str(), issuer: &begun.issuer, issuer_required: begun.names_issuer };
    Ok(ApiResponse::json(&view, request.pretty())?)
}

/// Finishes a login with what the provider has added to the redirect. A token in the request is ignored.
pub(super) async fn finish(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let mut fields = read_login(request).await?;
    let body_namespace = take_namespace(&mut fields)?;
    let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
    let login = OidcCallbackRequest {
        method: text("AuthMethod")?,
        unverified_state: text("State")?,
        unverified_code: SecretString::from(text("Code")?),
        client_nonce: SecretString::from(text("ClientNonce")?),
    };
    fields.finish()?;
    let namespace = request.method_namespace(body_namespace.as_deref())?;
    let (live, secret) = state.methods.finish_oidc(&namespace, &login).await.map_err(ApiError::Login)?;
    request.audit_accessor(live.accessor());
    let view = tokens::view(state, &live.token, secret.reveal(), Freshness::Linearizable).await?;
    Ok(ApiResponse::json(&view, request.pretty())?)
}
