//! Tokens that Google signs for a service account
//! (cloud.google.com, "Method: projects.serviceAccounts.signJwt").

use keyward_machine::secret_string::SecretString;
use serde_json::{Map, Value, json};
use url::Url;

use crate::identity::error::AttemptError;
use crate::identity::token_response;
use crate::identity::transport::Transport;

/// Requests a signature of these claims by a service account, with an access token that may sign for it.
pub(super) async fn request(
    transport: &Transport,
    base: &Url,
    service_account: &str,
    access_token: &SecretString,
    claims: &Value,
) -> Result<SecretString, AttemptError> {
    let mut url = base.clone();
    // The base is an https URL, which has segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        let method = format!("{service_account}:signJwt");
        segments.pop_if_empty().extend(["v1", "projects", "-", "serviceAccounts", &method]);
    }
    let transport = transport.with_redacted_secret(access_token.clone());
    let request = transport.http.post(url).bearer_auth(access_token.expose_secret());
    let body = transport.send(request.json(&json!({ "payload": claims.to_string() }))).await?;
    let mut response: Map<String, Value> = serde_json::from_slice(&body)
        .map_err(|_| AttemptError::Unreadable(format!("{} bytes that are not a JSON object", body.len())))?;
    match response.remove("signedJwt") {
        Some(Value::String(token)) if token_response::is_signed_token(&token) => Ok(token.into()),
        Some(_) => Err(AttemptError::Unreadable("signedJwt is not a signed token".to_owned())),
        None => Err(AttemptError::Unreadable("signedJwt is missing".to_owned())),
    }
}
