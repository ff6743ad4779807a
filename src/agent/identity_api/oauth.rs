//! A token endpoint of OAuth 2.0 for clients with a secret (RFC 6749, 4.4), for tools that know no other form. The secret is the listener's key.

use http::StatusCode;
use serde::Serialize;

use super::request::{FormError, FormRequest, FormResponse, FoundToken};
use crate::json_response::json;

#[derive(Serialize)]
struct TokenResponse<'a> {
    access_token: &'a str,
    token_type: &'static str,
    expires_in: u64,
}

#[derive(Serialize)]
struct ErrorResponse<'a> {
    error: &'static str,
    error_description: &'a str,
}

/// Suffix of a scope for all permissions of a resource of Azure.
const DEFAULT: &str = "/.default";

pub(super) fn respond(request: &FormRequest<'_>) -> Result<FormResponse, FormError> {
    if request.parameter("grant_type") != Some("client_credentials") {
        return Err(FormError::invalid("grant_type must be client_credentials"));
    }
    let scope = request.parameter("scope").map(|scope| scope.strip_suffix(DEFAULT).unwrap_or(scope));
    let resource = request.parameter("resource").or_else(|| request.parameter("audience")).or(scope);
    let resource = resource.ok_or_else(|| FormError::invalid("scope, resource or audience is missing"))?;
    let found = request.find_token_for(resource)?;
    let expires_in = request.identity.seconds_left(&found.token);
    let FoundToken { token, .. } = found;
    let access_token = token.secret.secret().expose_secret();
    Ok(json(StatusCode::OK, &TokenResponse { access_token, token_type: "Bearer", expires_in }))
}

pub(super) fn write_error(refusal: &FormError) -> FormResponse {
    let error = match refusal.outcome {
        "not_listed" => "invalid_scope",
        "unavailable" => "temporarily_unavailable",
        "denied" => "unauthorized_client",
        _ => "invalid_request",
    };
    let body = ErrorResponse { error, error_description: &refusal.message };
    refusal.to_response(&body)
}
