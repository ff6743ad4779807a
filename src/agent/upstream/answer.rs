//! What the server's answers say. Every field is checked; an error names the field and never holds its value.

use std::time::{Duration, SystemTime};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::error::CallError;
use super::text::{date, retry_after, tame};
use super::{LoginAnswer, LookedUp, Renewed};
use crate::agent::token;
use crate::agent::token::{ClientToken, Lease};
use crate::http::client::Answer;

/// The longest lease that is taken at its word; a longer one is renewed earlier than it had to be.
pub(super) const LONGEST_LEASE: Duration = Duration::from_hours(32 * 24);

const MOST_POLICIES: usize = 256;
const MOST_ERRORS: usize = 4;

/// Takes the JSON of a good answer.
pub(super) fn ok(answer: &Answer, sent: &SecretString) -> Result<Value, CallError> {
    accepted(answer, sent)?;
    serde_json::from_slice(&answer.body)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| garbage("it is not a JSON object", ""))
}

/// Takes any good answer, with or without a body. `sent` is the credential of the call.
pub(super) fn accepted(answer: &Answer, sent: &SecretString) -> Result<(), CallError> {
    if answer.status.is_success() {
        return Ok(());
    }
    let date = date(&answer.headers);
    let errors = if answer.status.is_redirection() {
        vec!["it redirects, which is never followed; give the address of the server that answers".to_owned()]
    } else {
        errors(&answer.body, sent)
    };
    let retry_after = retry_after(&answer.headers, date.unwrap_or_else(SystemTime::now));
    Err(CallError::Status { status: answer.status.as_u16(), errors, retry_after, date })
}

fn errors(body: &[u8], sent: &SecretString) -> Vec<String> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Vec::new() };
    let errors = body.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = errors.iter().filter_map(Value::as_str).take(MOST_ERRORS);
    texts.map(|text| tame(text, sent.expose_secret())).filter(|text| !text.is_empty()).collect()
}

/// Reads the answer of a login.
pub(super) fn login(mut answer: Value, wrapped: bool) -> Result<LoginAnswer, CallError> {
    if wrapped {
        let wrap = section(&answer, "wrap_info")?;
        let ttl = seconds(wrap, "wrap_info", "ttl")?;
        if ttl.is_zero() {
            return Err(garbage("wrap_info.ttl", " is zero"));
        }
        let kind = token::Kind::Wrapping {
            creation_time: text(wrap, "creation_time").unwrap_or_default(),
            creation_path: text(wrap, "creation_path").unwrap_or_default(),
        };
        let accessor = text(wrap, "accessor");
        let lease = Lease { ttl, renewable: false };
        let secret = secret(&mut answer, "wrap_info", "token")?;
        return Ok(LoginAnswer { secret, accessor, lease, kind, policies: Vec::new() });
    }
    let auth = section(&answer, "auth")?;
    if let Some(uses) = limited_use(auth, "auth")? {
        return Err(CallError::LimitedUse { uses });
    }
    let batch = auth.get("token_type").and_then(Value::as_str) == Some("batch");
    let mut lease = lease(auth, "auth", "lease_duration")?;
    lease.renewable &= !batch;
    let kind = if batch { token::Kind::Batch } else { token::Kind::Service };
    let (accessor, policies) = (text(auth, "accessor"), policies(auth));
    let secret = secret(&mut answer, "auth", "client_token")?;
    Ok(LoginAnswer { secret, accessor, lease, kind, policies })
}

/// Reads the answer of a look-up.
pub(super) fn lookup(answer: &Value) -> Result<LookedUp, CallError> {
    let found = section(answer, "data")?;
    let batch = found.get("type").and_then(Value::as_str) == Some("batch");
    let lease = lease(found, "data", "ttl")?;
    Ok(LookedUp { lease, accessor: text(found, "accessor"), batch, policies: policies(found) })
}

/// Reads the answer of a renewal.
pub(super) fn renewal(answer: &Value) -> Result<Renewed, CallError> {
    let auth = section(answer, "auth")?;
    Ok(Renewed { lease: lease(auth, "auth", "lease_duration")?, policies: policies(auth) })
}

type Section = serde_json::Map<String, Value>;

fn section<'a>(answer: &'a Value, name: &str) -> Result<&'a Section, CallError> {
    answer.get(name).and_then(Value::as_object).ok_or_else(|| garbage(name, " is missing"))
}

fn lease(section: &Section, name: &str, key: &str) -> Result<Lease, CallError> {
    let renewable = match section.get("renewable") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(renewable)) => *renewable,
        Some(_) => return Err(garbage(&format!("{name}.renewable"), " is neither true nor false")),
    };
    Ok(Lease { ttl: seconds(section, name, key)?, renewable })
}

/// A whole number of seconds, at most [`LONGEST_LEASE`].
fn seconds(section: &Section, name: &str, key: &str) -> Result<Duration, CallError> {
    match section.get(key).and_then(Value::as_u64) {
        Some(seconds) => Ok(Duration::from_secs(seconds).min(LONGEST_LEASE)),
        None => Err(garbage(&format!("{name}.{key}"), " is not a whole number of seconds")),
    }
}

fn limited_use(section: &Section, name: &str) -> Result<Option<u64>, CallError> {
    match section.get("num_uses") {
        None | Some(Value::Null) => Ok(None),
        Some(uses) => match uses.as_u64() {
            Some(0) => Ok(None),
            Some(uses) => Ok(Some(uses)),
            None => Err(garbage(&format!("{name}.num_uses"), " is not a count")),
        },
    }
}

fn secret(answer: &mut Value, name: &str, key: &str) -> Result<ClientToken, CallError> {
    let found = answer.get_mut(name).and_then(|section| section.get_mut(key)).map(Value::take);
    match found {
        Some(Value::String(text)) => ClientToken::parse(SecretString::from(text))
            .ok_or_else(|| garbage(&format!("{name}.{key}"), " is not 1 to 4096 visible ASCII characters")),
        _ => Err(garbage(&format!("{name}.{key}"), " is missing")),
    }
}

/// A text without secrets, such as an accessor; nothing if it is empty or too long.
fn text(section: &Section, key: &str) -> Option<String> {
    let text = section.get(key)?.as_str()?;
    ((1..=256).contains(&text.len()) && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn policies(section: &Section) -> Vec<String> {
    let names = section.get("policies").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = names.iter().filter_map(Value::as_str).take(MOST_POLICIES);
    names.map(|name| tame(name, "")).collect()
}

fn garbage(what: &str, wrong: &str) -> CallError {
    CallError::Garbage { what: format!("{what}{wrong}") }
}
