//! Login, look-up and logout by Consul's API: `/v1/acl/login`, `/v1/acl/token/self`, `/v1/acl/logout`.

use std::time::{Duration, SystemTime};

use http::Method;
use http::header::CONTENT_LENGTH;
use keyward_http::client::ClientResponse;
use keyward_http::client::sanitize::{parse_date_header, sanitize};
use keyward_machine::secret_string::SecretString;
use reqwest::RequestBuilder;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::parse_response::{self, MAX_LEASE};
use super::{CallError, LoginResponse, LookupResponse, ServerClient};
use crate::token::{self, ClientToken, Lease};

impl ServerClient {
    /// Logs in by an auth method with a signed token (`POST acl/login`).
    pub(crate) async fn consul_login(
        &self,
        method: &str,
        namespace: Option<&str>,
        bearer: &SecretString,
    ) -> Result<LoginResponse, CallError> {
        let body = LoginBody { method, bearer: bearer.expose_secret() };
        let request = self.acl(Method::POST, "v1/acl/login", None, namespace).json(&body);
        let response = self.send_within(request, self.login_timeout).await?;
        parse_login(&response, bearer)
    }

    /// Looks a token up (`GET acl/token/self`).
    pub(super) async fn consul_lookup(
        &self,
        token: &ClientToken,
        namespace: Option<&str>,
    ) -> Result<LookupResponse, CallError> {
        let request = self.acl(Method::GET, "v1/acl/token/self", Some(token), namespace);
        let response = self.send(request).await?;
        let document = parse_json(&response, token.secret())?;
        let lease = lease(&document, server_time(&response))?;
        let accessor = accessor(&document);
        let policies = policies(&document);
        Ok(LookupResponse { lease, accessor, batch: false, policies, uses_left: None })
    }

    /// Revokes a token (`POST acl/logout`).
    pub(super) async fn consul_logout(&self, token: &ClientToken, namespace: Option<&str>) -> Result<(), CallError> {
        let request = self.acl(Method::POST, "v1/acl/logout", Some(token), namespace);
        // The library sends none for an empty body, which some proxies require of a POST.
        let request = request.header(CONTENT_LENGTH, 0);
        let response = self.send(request).await?;
        parse_response::check_status(&response, token.secret())
            .map_err(|error| add_text(error, &response, token.secret()))
    }

    fn acl(&self, method: Method, path: &str, token: Option<&ClientToken>, namespace: Option<&str>) -> RequestBuilder {
        let mut request = self.client.request(method, path);
        if let Some(namespace) = namespace {
            request = request.header("x-consul-namespace", namespace);
        }
        match token {
            Some(token) => request.header("x-consul-token", token.header_value()),
            None => request,
        }
    }
}

/// Parses the response to a login that sent `bearer`.
pub(super) fn parse_login(response: &ClientResponse, bearer: &SecretString) -> Result<LoginResponse, CallError> {
    let mut document = parse_json(response, bearer)?;
    let secret = match document.get_mut("SecretID").map(Value::take) {
        Some(Value::String(text)) => ClientToken::parse(SecretString::from(text)),
        _ => None,
    };
    let secret = secret.ok_or_else(|| invalid("SecretID is not 1 to 4096 visible ASCII characters"))?;
    let accessor = accessor(&document);
    let policies = policies(&document);
    // Both times are the server's, so clock skew has no effect.
    let lease = lease(&document, time(&document, "CreateTime")?.unwrap_or_else(|| server_time(response)))?;
    Ok(LoginResponse { secret, accessor, lease, kind: token::TokenKind::Service, policies, is_orphan: false })
}

#[derive(Serialize)]
struct LoginBody<'a> {
    #[serde(rename = "AuthMethod")]
    method: &'a str,
    #[serde(rename = "BearerToken")]
    bearer: &'a str,
}

fn parse_json(response: &ClientResponse, sent: &SecretString) -> Result<Value, CallError> {
    parse_response::parse_json(response, sent).map_err(|error| add_text(error, response, sent))
}

/// Adds the response's text to an error, since Consul's errors are plain text.
fn add_text(error: CallError, response: &ClientResponse, sent: &SecretString) -> CallError {
    match error {
        CallError::Status { status, errors, retry_after, date } if errors.is_empty() => {
            let text = String::from_utf8_lossy(&response.body);
            let text = sanitize(text.trim(), sent.expose_secret());
            let errors = if text.is_empty() { Vec::new() } else { vec![text] };
            CallError::Status { status, errors, retry_after, date }
        }
        error => error,
    }
}

/// Returns the server's time by the `Date` header, else ours.
fn server_time(response: &ClientResponse) -> SystemTime {
    parse_date_header(&response.headers).unwrap_or_else(SystemTime::now)
}

/// Returns the rest of the lease at a time; zero means no expiry.
fn lease(token: &Value, at: SystemTime) -> Result<Lease, CallError> {
    let ttl = match time(token, "ExpirationTime")? {
        None => Duration::ZERO,
        // Zero would mean no expiry, so an expired token keeps a millisecond.
        Some(end) => end.duration_since(at).unwrap_or_default().clamp(Duration::from_millis(1), MAX_LEASE),
    };
    Ok(Lease { ttl, renewable: false })
}

fn time(token: &Value, field: &str) -> Result<Option<SystemTime>, CallError> {
    match token.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => match OffsetDateTime::parse(text, &Rfc3339) {
            Ok(time) => Ok(Some(time.into())),
            Err(_) => Err(invalid(&format!("{field} is not an RFC 3339 time"))),
        },
        Some(_) => Err(invalid(&format!("{field} is not an RFC 3339 time"))),
    }
}

fn accessor(token: &Value) -> Option<String> {
    let text = token.get("AccessorID")?.as_str()?;
    ((1..=256).contains(&text.len()) && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Returns the names of a token's policies and roles.
fn policies(token: &Value) -> Vec<String> {
    let names = ["Policies", "Roles"].into_iter().filter_map(|list| token.get(list)?.as_array()).flatten();
    names.filter_map(|link| link.get("Name")?.as_str()).take(256).map(|name| sanitize(name, "")).collect()
}

fn invalid(problem: &str) -> CallError {
    CallError::InvalidResponse { what: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_ends_by_the_servers_clock() {
        let at = SystemTime::from(OffsetDateTime::parse("2026-01-01T00:00:00Z", &Rfc3339).unwrap());
        let check = |end: Value, expected: Option<u64>| {
            let found = lease(&json!({ "ExpirationTime": end }), at).ok().map(|lease| lease.ttl.as_secs());
            assert_eq!(found, expected);
        };
        check(json!("2026-01-01T00:10:00.5Z"), Some(600));
        check(json!("2026-01-01T01:00:00+01:00"), Some(0));
        check(json!("2099-01-01T00:00:00Z"), Some(32 * 24 * 3600));
        check(json!("soon"), None);
        check(json!(7), None);
        let over = lease(&json!({ "ExpirationTime": "2020-01-01T00:00:00Z" }), at).unwrap();
        assert!(!over.ttl.is_zero(), "zero would mean no expiry");
        assert!(lease(&json!({}), at).unwrap().ttl.is_zero());
    }
}
