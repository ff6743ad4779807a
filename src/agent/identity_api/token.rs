//! A token alone: for Google's external accounts (cloud.google.com, "Workload Identity Federation": URL-sourced credentials), for keyward's
//! own commands, and for what has no form of its own.

use http::StatusCode;
use keyward_telemetry::time_format::format_rfc3339;
use serde::Serialize;
use std::time::{Duration, SystemTime};

use super::request::{FormError, FormRequest, FormResponse, FoundToken};
use crate::json_response::{Errors, json, with_body};

#[derive(Serialize)]
struct TokenResponse<'a> {
    token: &'a str,
    /// Resource as the configuration lists it.
    resource: &'a str,
    expires_at: String,
    /// Seconds since 1970.
    expires_on: u64,
}

pub(super) fn respond(request: &FormRequest<'_>) -> Result<FormResponse, FormError> {
    let FoundToken { token, expires_on, resource } = request.find_token()?;
    let text = token.secret.secret().expose_secret();
    match request.parameter("format") {
        Some("text") => Ok(with_body(StatusCode::OK, "text/plain", text.to_owned().into())),
        Some("json") | None => {
            let expires_at = format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(expires_on));
            Ok(json(StatusCode::OK, &TokenResponse { token: text, resource, expires_at, expires_on }))
        }
        Some(_) => Err(FormError::invalid("the query parameter format must be json or text")),
    }
}

pub(super) fn write_error(refusal: &FormError) -> FormResponse {
    refusal.to_response(&Errors { errors: [&refusal.message] })
}
