//! Handlers of `POST /v1/acl/login` and `POST /v1/acl/logout`.

use std::collections::BTreeMap;

use keyward_machine::secret_string::SecretString;
use serde_json::Value;

use super::body::{self, MAX_LOGIN};
use super::error::ApiError;
use super::json::JsonFields;
use super::request::{ApiRequest, take_namespace};
use super::response::{ApiResponse, Change};
use super::state::ApiState;
use super::tokens;
use crate::service::error::ServiceError;
use crate::service::login::StoredLoginRequest;
use crate::store::Freshness;

/// Logs in by a stored auth method. A token in the request is ignored.
pub(super) async fn log_in(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let (login, body_namespace) = parse_login(read_login(request).await?)?;
    let namespace = request.method_namespace(body_namespace.as_deref())?;
    let (live, secret) = state.methods.login_stored(&namespace, &login).await.map_err(ApiError::Login)?;
    request.audit_accessor(live.accessor());
    let view = tokens::view(state, &live.token, secret.reveal(), Freshness::Linearizable).await?;
    Ok(ApiResponse::json(&view, request.pretty())?)
}

/// Reads the body of a login.
pub(super) async fn read_login(request: &mut ApiRequest) -> Result<JsonFields, ApiError> {
    let body = match request.take_body() {
        Some(body) => body::read_bounded(body, MAX_LOGIN).await?,
        None => Vec::new(),
    };
    Ok(JsonFields::parse(&body, JsonFields::REQUEST)?)
}

fn parse_login(mut fields: JsonFields) -> Result<(StoredLoginRequest, Option<String>), ApiError> {
    let namespace = take_namespace(&mut fields)?;
    let method = fields.string("AuthMethod")?.unwrap_or_default();
    let bearer = SecretString::from(fields.string("BearerToken")?.unwrap_or_default());
    let meta = take_meta(&mut fields)?;
    fields.finish()?;
    Ok((StoredLoginRequest { method, unverified_jwt: bearer, meta }, namespace))
}

/// Takes `Meta` from the body of a login.
pub(super) fn take_meta(fields: &mut JsonFields) -> Result<BTreeMap<String, String>, ApiError> {
    let mut meta = BTreeMap::new();
    for (name, value) in fields.map("Meta")?.unwrap_or_default() {
        let Value::String(value) = value else {
            return Err(fields.invalid_value("Meta", &"all values must be strings").into());
        };
        meta.insert(name, value);
    }
    Ok(meta)
}

/// Deletes the token of the request, which a login must have created.
pub(super) async fn log_out(state: &ApiState, request: &ApiRequest) -> Result<Change, ApiError> {
    let secret = request.secret.as_ref().ok_or(ApiError::LogoutWithoutToken)?;
    let live = state.service.authenticator().live_token_by_secret(secret, Freshness::Linearizable).await?;
    let live = live.ok_or(ServiceError::UnknownSecret)?;
    request.audit_accessor(live.accessor());
    state.methods.log_out(&live).await?;
    let immutable = live.token.value.immutable();
    let namespace = immutable.namespace.clone();
    let subject = immutable.accessor_id.to_string();
    Ok(Change {
        response: ApiResponse::json(&true, request.pretty())?,
        by: Some(immutable.accessor_id),
        namespace,
        subject,
    })
}
