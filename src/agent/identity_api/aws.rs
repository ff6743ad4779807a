//! The endpoint of container credentials, which AWS's SDKs call where `AWS_CONTAINER_CREDENTIALS_FULL_URI` is set
//! (docs.aws.amazon.com, "Container credential provider").

use http::StatusCode;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::time_format::format_rfc3339;
use serde::Serialize;

use super::request::{FormError, FormRequest, FormResponse};
use crate::json_response::json;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct CredentialResponse<'a> {
    access_key_id: &'a str,
    secret_access_key: &'a str,
    token: &'a str,
    expiration: String,
    role_arn: &'a str,
}

#[derive(Serialize)]
struct ErrorResponse<'a> {
    code: &'static str,
    message: &'a str,
}

pub(super) fn respond(request: &FormRequest<'_>) -> Result<FormResponse, FormError> {
    let (role_arn, found) = request.find_role()?;
    let credentials = &found.credentials;
    Ok(json(
        StatusCode::OK,
        &CredentialResponse {
            access_key_id: &credentials.access_key_id,
            secret_access_key: credentials.secret_access_key.expose_secret(),
            token: credentials.session_token.as_ref().map_or("", SecretString::expose_secret),
            expiration: format_rfc3339(found.expires.wall),
            role_arn,
        },
    ))
}

pub(super) fn write_error(refusal: &FormError) -> FormResponse {
    let body = ErrorResponse { code: refusal.outcome, message: &refusal.message };
    refusal.to_response(&body)
}
