//! Parses responses of the server. Every field is checked; errors name the field and never hold its value.

use std::time::{Duration, SystemTime};

use keyward_http::client::ClientResponse;
use keyward_http::client::sanitize::{parse_date_header, parse_retry_after, sanitize};
use keyward_machine::secret_string::SecretString;
use serde_json::Value;

use super::error::CallError;
use super::{LoginResponse, LookupResponse, RenewResponse};
use crate::token;
use crate::token::{ClientToken, Lease};

/// Longest lease that is accepted; a longer one is renewed earlier than necessary.
pub(super) const MAX_LEASE: Duration = Duration::from_hours(32 * 24);

const MAX_POLICIES: usize = 256;
const MAX_ERRORS: usize = 4;

/// Parses a successful response as a JSON object.
pub(super) fn parse_json(response: &ClientResponse, sent: &SecretString) -> Result<Value, CallError> {
    check_status(response, sent)?;
    serde_json::from_slice(&response.body)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| invalid("it is not a JSON object", ""))
}

/// Returns true for the response of a server to a list of nothing: a 404 with an empty list of errors, and nothing else.
pub(super) fn is_empty_list(response: &ClientResponse) -> bool {
    if response.status != http::StatusCode::NOT_FOUND {
        return false;
    }
    let Ok(Value::Object(body)) = serde_json::from_slice(&response.body) else { return false };
    body.get("errors").and_then(Value::as_array).is_some_and(Vec::is_empty) && body.get("warnings").is_none_or(is_empty)
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns an error for a response that is not successful. `sent` is the credential of the call.
pub(super) fn check_status(response: &ClientResponse, sent: &SecretString) -> Result<(), CallError> {
    if response.status.is_success() {
        return Ok(());
    }
    let date = parse_date_header(&response.headers);
    let errors = if response.status.is_redirection() {
        vec!["the server redirects, which is never followed: configure the address of the active server".to_owned()]
    } else {
        errors(&response.body, sent)
    };
    // The server's own time, so that a `Retry-After` with a date does not depend on our clock.
    let retry_after = parse_retry_after(&response.headers, date.unwrap_or_else(SystemTime::now));
    Err(CallError::Status { status: response.status.as_u16(), errors, retry_after, date })
}

fn errors(body: &[u8], sent: &SecretString) -> Vec<String> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Vec::new() };
    let list = |name: &str| body.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // Key-value version 2 gives the reason of a 404 as a warning.
    let errors = if list("errors").is_empty() { list("warnings") } else { list("errors") };
    let messages = errors.iter().filter_map(Value::as_str).take(MAX_ERRORS);
    messages.map(|text| sanitize(text, sent.expose_secret())).filter(|text| !text.is_empty()).collect()
}

/// Parses the response to a login, and the limit of uses of its token, if there is one.
pub(super) fn login(response: &mut Value, wrapped: bool) -> Result<(LoginResponse, Option<u64>), CallError> {
    if wrapped {
        let wrap = section(response, "wrap_info")?;
        let ttl = seconds(wrap, "wrap_info", "ttl")?;
        if ttl.is_zero() {
            return Err(invalid("wrap_info.ttl", " is zero"));
        }
        let kind = token::TokenKind::Wrapping {
            creation_time: text(wrap, "creation_time").unwrap_or_default(),
            creation_path: text(wrap, "creation_path").unwrap_or_default(),
        };
        let accessor = text(wrap, "accessor");
        let lease = Lease { ttl, renewable: false };
        let secret = secret(response, "wrap_info", "token")?;
        return Ok((LoginResponse { secret, accessor, lease, kind, policies: Vec::new(), is_orphan: false }, None));
    }
    let auth = section(response, "auth")?;
    let uses = parse_use_limit(auth, "auth")?;
    let batch = auth.get("token_type").and_then(Value::as_str) == Some("batch");
    let mut lease = lease(auth, "auth", "lease_duration")?;
    // Batch tokens cannot be renewed, whatever the response says.
    lease.renewable &= !batch;
    let kind = if batch { token::TokenKind::Batch } else { token::TokenKind::Service };
    let accessor = text(auth, "accessor");
    let policies = policies(auth);
    let is_orphan = auth.get("orphan").and_then(Value::as_bool).unwrap_or(false);
    let secret = secret(response, "auth", "client_token")?;
    Ok((LoginResponse { secret, accessor, lease, kind, policies, is_orphan }, uses))
}

/// Parses the response to a look-up.
pub(super) fn lookup(response: &Value) -> Result<LookupResponse, CallError> {
    let data = section(response, "data")?;
    let batch = data.get("type").and_then(Value::as_str) == Some("batch");
    let lease = lease(data, "data", "ttl")?;
    // Negative after the last use, which may be this look-up, until the server has revoked the token.
    let is_used_up = data.get("num_uses").and_then(Value::as_i64).is_some_and(i64::is_negative);
    let uses_left = if is_used_up { Some(0) } else { parse_use_limit(data, "data")? };
    Ok(LookupResponse { lease, accessor: text(data, "accessor"), batch, policies: policies(data), uses_left })
}

/// Parses the response to a renewal.
pub(super) fn renewal(response: &Value) -> Result<RenewResponse, CallError> {
    let auth = section(response, "auth")?;
    Ok(RenewResponse { lease: lease(auth, "auth", "lease_duration")?, policies: policies(auth) })
}

type Section = serde_json::Map<String, Value>;

fn section<'a>(response: &'a Value, name: &str) -> Result<&'a Section, CallError> {
    response.get(name).and_then(Value::as_object).ok_or_else(|| invalid(name, " is missing"))
}

fn lease(section: &Section, name: &str, key: &str) -> Result<Lease, CallError> {
    let renewable = match section.get("renewable") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(renewable)) => *renewable,
        Some(_) => return Err(invalid(&format!("{name}.renewable"), " is not a boolean")),
    };
    Ok(Lease { ttl: seconds(section, name, key)?, renewable })
}

/// Parses a whole number of seconds and caps it to the longest lease.
fn seconds(section: &Section, name: &str, key: &str) -> Result<Duration, CallError> {
    match section.get(key).and_then(Value::as_u64) {
        Some(seconds) => Ok(Duration::from_secs(seconds).min(MAX_LEASE)),
        None => Err(invalid(&format!("{name}.{key}"), " is not a whole number of seconds")),
    }
}

fn parse_use_limit(section: &Section, name: &str) -> Result<Option<u64>, CallError> {
    match section.get("num_uses") {
        None | Some(Value::Null) => Ok(None),
        Some(uses) => match uses.as_u64() {
            // Zero stands for no limit.
            Some(0) => Ok(None),
            Some(uses) => Ok(Some(uses)),
            None => Err(invalid(&format!("{name}.num_uses"), " is not a non-negative integer")),
        },
    }
}

fn secret(response: &mut Value, name: &str, key: &str) -> Result<ClientToken, CallError> {
    let value = response.get_mut(name).and_then(|section| section.get_mut(key)).map(Value::take);
    match value {
        Some(Value::String(text)) => ClientToken::parse(SecretString::from(text))
            .ok_or_else(|| invalid(&format!("{name}.{key}"), " is not 1 to 4096 visible ASCII characters")),
        _ => Err(invalid(&format!("{name}.{key}"), " is missing")),
    }
}

/// Returns a string that is not a secret, such as an accessor; `None` if it is empty or too long.
fn text(section: &Section, key: &str) -> Option<String> {
    let text = section.get(key)?.as_str()?;
    ((1..=256).contains(&text.len()) && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn policies(section: &Section) -> Vec<String> {
    let names = section.get("policies").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = names.iter().filter_map(Value::as_str).take(MAX_POLICIES);
    names.map(|name| sanitize(name, "")).collect()
}

fn invalid(what: &str, wrong: &str) -> CallError {
    CallError::InvalidResponse { what: format!("{what}{wrong}") }
}

#[cfg(test)]
mod tests;
