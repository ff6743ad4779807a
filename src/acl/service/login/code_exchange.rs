//! Exchanges the code of a login with a browser for an ID token at the provider.

use std::time::Duration;

use http::{Method, StatusCode, header};
use keyward_http::client::sanitize::sanitize;
use keyward_http::client::{Client, ClientResponse};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use parking_lot::Mutex;
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::call_slots::CallSlots;
use crate::model::oidc::{LoginAttempt, OidcError};
use crate::service::issuer_keys::{CaSource, parse_object};

/// Client of the token endpoint of a provider.
#[derive(Debug)]
pub(super) struct TokenEndpoint {
    ca_certificates: CaSource,
    /// Built at the first login, and again where the discovery document names another URL.
    client: Mutex<Option<(Url, Client)>>,
    slots: CallSlots,
}

/// Time limit of an exchange.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Largest response in bytes. An ID token with 200 groups has some 10 KiB.
const MAX_RESPONSE: usize = 256 * 1024;

/// Response of a token endpoint. Access and refresh tokens are dropped: a login needs neither.
#[derive(Deserialize)]
struct TokenResponse {
    id_token: Option<String>,
}

/// Refusal of a token endpoint (RFC 6749, 5.2).
#[derive(Deserialize)]
struct TokenError {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl TokenEndpoint {
    pub(super) fn new(ca_certificates: CaSource) -> Self {
        Self { ca_certificates, client: Mutex::default(), slots: CallSlots::new() }
    }

    /// Exchanges a code for an ID token, which is unverified.
    ///
    /// The limit of logins by source bounds the exchanges. One by login would not: everybody may begin logins. One by method
    /// would let anybody keep all people of the method out; the slots hold nobody longer than the provider takes.
    pub(super) async fn exchange(
        &self,
        endpoint: &Url,
        client_id: &str,
        code: &SecretString,
        attempt: &LoginAttempt,
    ) -> Result<SecretString, OidcError> {
        let unusable = OidcError::TokenEndpoint;
        let _slot = self.slots.take().await.map_err(|error| unusable(error.to_string()))?;
        let client = self.client(endpoint).map_err(unusable)?;
        // A public client has no secret: it names itself in the body (RFC 6749, 3.2.1).
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code.expose_secret())
            .append_pair("redirect_uri", &attempt.redirect_uri)
            .append_pair("client_id", client_id)
            .append_pair("code_verifier", attempt.verifier())
            .finish();
        let query: Vec<_> = endpoint.query_pairs().collect();
        let mut call = client.request_to_address(Method::POST);
        if !query.is_empty() {
            call = call.query(&query);
        }
        let call = call
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(body);
        let response = client.send_bounded(call, TIME_LIMIT, MAX_RESPONSE).await;
        let response = response.map_err(|error| OidcError::TokenEndpoint(error.to_string()))?;
        parse(&response, client.server(), code.expose_secret())
    }

    fn client(&self, endpoint: &Url) -> Result<Client, String> {
        let mut client = self.client.lock();
        if let Some((url, client)) = &*client
            && url == endpoint
        {
            return Ok(client.clone());
        }
        let mut address = endpoint.clone();
        address.set_query(None);
        let options = self.ca_certificates.client_options(address);
        let built = options.build().map_err(|error| format_chain(&error))?;
        Ok(client.insert((endpoint.clone(), built)).1.clone())
    }
}

/// Reads the response to an exchange; `code` is removed from texts of the provider.
fn parse(response: &ClientResponse, server: &str, code: &str) -> Result<SecretString, OidcError> {
    let unusable = |text: String| Err(OidcError::TokenEndpoint(text));
    if response.status == StatusCode::OK {
        return match parse_object::<TokenResponse>(&response.body) {
            Some(TokenResponse { id_token: Some(token) }) => Ok(SecretString::from(token)),
            Some(_) => unusable(format!("{server} returned no id_token")),
            None => unusable(format!("{server} did not return a JSON object with an id_token")),
        };
    }
    let is_refusal =
        matches!(response.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    match parse_object::<TokenError>(&response.body).filter(|_| is_refusal) {
        Some(TokenError { error, error_description: text }) => {
            let separator = if text.is_empty() { "" } else { ": " };
            Err(OidcError::CodeRefused(sanitize(&format!("{error}{separator}{text}"), code)))
        }
        None => unusable(format!("{server} returned HTTP {}", response.status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn only_a_json_object_with_an_id_token_is_an_answer_and_errors_repeat_no_code() {
        let parse = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            let response = ClientResponse { status, headers: HeaderMap::new(), body: body.as_bytes().to_vec() };
            parse(&response, "https://login.example", "the-code")
        };
        let token = parse(200, r#"{"access_token": "a", "token_type": "Bearer", "id_token": "h.p.s"}"#).unwrap();
        assert_eq!(token.expose_secret(), "h.p.s");
        let check = |status: u16, body: &str, expected: &str| {
            let error = parse(status, body).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        };
        for body in ["", "null", "[\"h.p.s\"]", "{\"id_token\": 7}", "<html>", "{\"id_token\": \"a\"", "\u{feff}{}"] {
            check(200, body, "https://login.example did not return a JSON object with an id_token");
        }
        check(200, r#"{"access_token": "a"}"#, "https://login.example returned no id_token");
        check(200, r#"{"id_token": null}"#, "https://login.example returned no id_token");
        check(400, r#"{"error": "invalid_grant"}"#, "the provider refused the code: invalid_grant");
        check(
            401,
            r#"{"error": "invalid_client", "error_description": "AADSTS7000218: the-code\nneeds a secret"}"#,
            "the provider refused the code: invalid_client: AADSTS7000218: [redacted]\\nneeds a secret",
        );
        check(400, "not JSON", "https://login.example returned HTTP 400");
        check(500, r#"{"error": "server_error"}"#, "https://login.example returned HTTP 500");
        check(302, "", "https://login.example returned HTTP 302");
        check(201, r#"{"id_token": "h.p.s"}"#, "https://login.example returned HTTP 201");
    }
}
