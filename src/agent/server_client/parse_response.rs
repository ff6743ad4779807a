//! Parses responses of the server. Every field is checked; errors name the field and never hold its value.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use zeroize::Zeroize as _;

use super::error::CallError;
use super::{LoginResponse, LookupResponse, RenewResponse};
use crate::agent::token;
use crate::agent::token::{ClientToken, Lease};
use crate::http::client::ClientResponse;
use crate::http::client::sanitize::{parse_date_header, parse_retry_after, sanitize};
use crate::secret_string::SecretString;

/// Longest lease that is accepted; a longer one is renewed earlier than necessary.
pub(super) const MAX_LEASE: Duration = Duration::from_hours(32 * 24);

const MAX_POLICIES: usize = 256;
const MAX_ERRORS: usize = 4;

/// Parses a successful response as a JSON object.
pub(super) fn parse_json(response: &ClientResponse, sent: &SecretString) -> Result<SecretJson, CallError> {
    check_status(response, sent)?;
    serde_json::from_slice(&response.body)
        .ok()
        .filter(Value::is_object)
        .map(SecretJson)
        .ok_or_else(|| invalid("it is not a JSON object", ""))
}

/// JSON of a response, which may repeat the call's token. Zeroed on drop.
pub(super) struct SecretJson(Value);

impl Deref for SecretJson {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for SecretJson {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl Drop for SecretJson {
    fn drop(&mut self) {
        zeroize_json(&mut self.0);
    }
}

/// Zeroes every string of a JSON value. Numbers and field names stay.
pub(in crate::agent) fn zeroize_json(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(zeroize_json),
        Value::Object(fields) => fields.values_mut().for_each(zeroize_json),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
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
    let retry_after = parse_retry_after(&response.headers, date.unwrap_or_else(SystemTime::now));
    Err(CallError::Status { status: response.status.as_u16(), errors, retry_after, date })
}

fn errors(body: &[u8], sent: &SecretString) -> Vec<String> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Vec::new() };
    let errors = body.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
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
    lease.renewable &= !batch;
    let kind = if batch { token::TokenKind::Batch } else { token::TokenKind::Service };
    let (accessor, policies) = (text(auth, "accessor"), policies(auth));
    let is_orphan = auth.get("orphan").and_then(Value::as_bool).unwrap_or(false);
    let secret = secret(response, "auth", "client_token")?;
    Ok((LoginResponse { secret, accessor, lease, kind, policies, is_orphan }, uses))
}

/// Parses the response to a look-up.
pub(super) fn lookup(response: &Value) -> Result<LookupResponse, CallError> {
    let data = section(response, "data")?;
    let batch = data.get("type").and_then(Value::as_str) == Some("batch");
    let lease = lease(data, "data", "ttl")?;
    Ok(LookupResponse { lease, accessor: text(data, "accessor"), batch, policies: policies(data) })
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
mod tests {
    use http::{HeaderMap, StatusCode};
    use proptest::prelude::*;
    use serde_json::json;
    use zeroize::Zeroizing;

    use super::*;

    fn parsed(body: &[u8]) -> Result<SecretJson, CallError> {
        let (headers, body) = (HeaderMap::new(), Zeroizing::new(body.to_vec()));
        parse_json(&ClientResponse { status: StatusCode::OK, headers, body }, &SecretString::from("sent"))
    }

    #[test]
    fn a_login_response_is_accepted_only_if_every_field_is_valid() {
        let check = |auth: Value, expected: Result<(u64, bool), &str>| {
            let found = login(&mut json!({ "auth": auth }), false);
            let found = found.map(|(found, _)| (found.lease.ttl.as_secs(), found.lease.renewable));
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        };
        let nonsense = |what: &str| format!("invalid response from the server: {what}");
        let good = json!({ "client_token": "t", "lease_duration": 60, "renewable": true });
        let with = |key: &str, value: Value| {
            let mut auth = good.clone();
            auth[key] = value;
            auth
        };
        check(good.clone(), Ok((60, true)));
        check(with("token_type", json!("batch")), Ok((60, false)));
        check(with("renewable", Value::Null), Ok((60, false)));
        check(with("lease_duration", json!(0)), Ok((0, true)));
        check(with("lease_duration", json!(u64::MAX)), Ok((32 * 24 * 3600, true)));
        check(with("num_uses", json!(0)), Ok((60, true)));
        check(with("policies", json!([1, null, { "a": 1 }])), Ok((60, true)));
        check(with("accessor", json!({})), Ok((60, true)));
        let lease = nonsense("auth.lease_duration is not a whole number of seconds");
        for bad in [json!(-1), json!(1.5), json!("60"), json!(1e300), Value::Null, json!([60]), json!(true)] {
            check(with("lease_duration", bad), Err(&lease));
        }
        let token = nonsense("auth.client_token is not 1 to 4096 visible ASCII characters");
        for bad in ["", "a b", "a\nb", "a\r\nX-Other: b", "a\0", "é", &"a".repeat(4097)] {
            check(with("client_token", json!(bad)), Err(&token));
        }
        for bad in [Value::Null, json!(1), json!(["t"]), json!({})] {
            check(with("client_token", bad), Err(&nonsense("auth.client_token is missing")));
        }
        for bad in [json!("yes"), json!(1)] {
            check(with("renewable", bad), Err(&nonsense("auth.renewable is not a boolean")));
        }
        for bad in [json!(-1), json!("1"), json!(0.5)] {
            check(with("num_uses", bad), Err(&nonsense("auth.num_uses is not a non-negative integer")));
        }
        for bad in [Value::Null, json!([]), json!("auth"), json!(1)] {
            check(bad, Err(&nonsense("auth is missing")));
        }
        assert_eq!(login(&mut json!({ "auth": with("num_uses", json!(3)) }), false).unwrap().1, Some(3));
        let is_orphan = |auth: Value| login(&mut json!({ "auth": auth }), false).unwrap().0.is_orphan;
        assert!(is_orphan(with("orphan", json!(true))) && !is_orphan(good.clone()));
    }

    #[test]
    fn a_wrapped_login_is_accepted_only_with_a_token_and_a_ttl() {
        let check = |mut response: Value, expected: bool| assert_eq!(login(&mut response, true).is_ok(), expected);
        check(json!({ "wrap_info": { "token": "t", "ttl": 60 } }), true);
        check(json!({ "wrap_info": { "token": "t", "ttl": 0 } }), false);
        check(json!({ "wrap_info": { "token": "t", "ttl": -1 } }), false);
        check(json!({ "wrap_info": { "ttl": 60 } }), false);
        check(json!({ "wrap_info": null, "auth": { "client_token": "t", "lease_duration": 60 } }), false);
    }

    #[test]
    fn a_response_that_is_not_a_json_object_is_rejected() {
        let deep = "[".repeat(100_000);
        for body in ["", " ", "null", "1", "\"x\"", "[]", "{", "{\"auth\":", "<html></html>", "\u{feff}{}", &deep] {
            assert!(matches!(parsed(body.as_bytes()), Err(CallError::InvalidResponse { .. })), "{body:.20}");
        }
        assert!(parsed(&[0xff, 0xfe]).is_err());
        assert!(parsed(b"{}").is_ok());
    }

    #[test]
    fn a_look_up_and_a_renewal_are_checked_alike() {
        assert!(lookup(&json!({ "data": { "ttl": 60, "renewable": true, "type": "service" } })).is_ok());
        assert!(lookup(&json!({ "data": { "ttl": 0, "expire_time": null } })).unwrap().lease.ttl.is_zero());
        assert!(lookup(&json!({ "data": { "ttl": -5 } })).is_err());
        assert!(lookup(&json!({ "data": null })).is_err());
        assert!(renewal(&json!({ "auth": { "lease_duration": 60, "renewable": true } })).is_ok());
        assert!(renewal(&json!({ "auth": { "lease_duration": "60" } })).is_err());
        assert!(renewal(&json!({ "data": {} })).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        let key = prop_oneof![
            Just("auth"),
            Just("data"),
            Just("wrap_info"),
            Just("client_token"),
            Just("token"),
            Just("lease_duration"),
            Just("ttl"),
            Just("renewable"),
            Just("num_uses"),
            Just("policies"),
            Just("errors"),
        ];
        leaf.prop_recursive(4, 64, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn parsing_any_response_does_not_panic(body in prop::collection::vec(any::<u8>(), 0..256), status in 100_u16..1000) {
            let status = StatusCode::from_u16(status).unwrap();
            let response = ClientResponse { status, headers: HeaderMap::new(), body: Zeroizing::new(body) };
            let _ = parse_json(&response, &SecretString::from("sent"));
        }

        #[test]
        fn a_token_parsed_from_any_json_is_usable(mut response in any_json(), wrapped in any::<bool>()) {
            let _ = (lookup(&response), renewal(&response));
            if let Ok((found, _)) = login(&mut response, wrapped) {
                let text = found.secret.secret().expose_secret();
                prop_assert!((1..=4096).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(found.lease.ttl <= MAX_LEASE);
            }
        }
    }
}
