//! The endpoint of App Service, which Azure's SDKs, the Azure CLI and Terraform's providers call where `IDENTITY_ENDPOINT` and
//! `IDENTITY_HEADER` are set (learn.microsoft.com, "How to use managed identities for App Service and Azure Functions").

use http::StatusCode;
use keyward_credentials::jwt::UnverifiedClaims;
use serde::Serialize;

use super::request::{FormError, FormRequest, FormResponse, FoundToken};
use crate::json_response::json;

/// Version of the API.
const API_VERSION: &str = "2019-08-01";

#[derive(Serialize)]
struct TokenResponse<'a> {
    access_token: &'a str,
    client_id: &'a str,
    /// Numbers are strings, as in App Service's own responses.
    expires_on: String,
    resource: &'a str,
    token_type: &'static str,
}

#[derive(Serialize)]
struct ErrorResponse<'a> {
    #[serde(rename = "statusCode")]
    status: u16,
    message: &'a str,
}

pub(super) fn respond(request: &FormRequest<'_>) -> Result<FormResponse, FormError> {
    if request.parameter("api-version") != Some(API_VERSION) {
        return Err(FormError::invalid(format!("the query parameter api-version must be {API_VERSION}")));
    }
    let FoundToken { token, expires_on, .. } = request.find_token()?;
    let access_token = token.secret.secret().expose_secret();
    let claims = UnverifiedClaims::decode(access_token).unwrap_or_default();
    check_identity(request, &claims)?;
    Ok(json(
        StatusCode::OK,
        &TokenResponse {
            access_token,
            client_id: claims.appid.as_deref().unwrap_or_default(),
            expires_on: expires_on.to_string(),
            resource: request.parameter("resource").unwrap_or_default(),
            token_type: "Bearer",
        },
    ))
}

/// Checks that a request which names an identity names this one: a tool must not act as another than it was told to.
fn check_identity(request: &FormRequest<'_>, claims: &UnverifiedClaims) -> Result<(), FormError> {
    let parameters = [
        ("client_id", &claims.appid),
        ("principal_id", &claims.oid),
        ("object_id", &claims.oid),
        ("mi_res_id", &claims.xms_mirid),
        ("msi_res_id", &claims.xms_mirid),
    ];
    for (name, claim) in parameters {
        if let Some(requested) = request.parameter(name)
            && !claim.as_ref().is_some_and(|claim| claim.eq_ignore_ascii_case(requested))
        {
            let identity = request.identity.name();
            return Err(FormError::invalid(format!(
                "No Managed Identity found for the requested {name}: [identity.{identity}] is another one; leave it out, or use \
                 the endpoint of the other identity"
            )));
        }
    }
    Ok(())
}

pub(super) fn write_error(error: &FormError) -> FormResponse {
    let body = ErrorResponse { status: error.status.as_u16(), message: &error.message };
    error.to_response(&body)
}
