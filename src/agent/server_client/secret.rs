//! Reads secrets, and renews and revokes their leases.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use keyward_machine::secret_string::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::parse_response::{self, MAX_LEASE};
use super::{CallError, ServerClient};
use crate::token::{ClientToken, Lease};

/// JSON fields of a secret. Debug prints none of them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretFields(Map<String, Value>);

impl fmt::Debug for SecretFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretFields")
    }
}

impl From<Map<String, Value>> for SecretFields {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

impl SecretFields {
    /// Returns the response's `data`.
    pub(crate) const fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns the fields, without the envelope of a key-value store of version 2 (`data` beside `metadata`).
    fn inner(&self) -> &Map<String, Value> {
        // A secret of version 1 may have a field `data` too, but no version number beside it.
        let versioned = self.0.get("metadata").and_then(|metadata| metadata.get("version")).is_some_and(Value::is_u64);
        match self.0.get("data") {
            Some(Value::Object(inner)) if self.0.len() == 2 && versioned => inner,
            _ => &self.0,
        }
    }

    /// Returns a field that is a string and not empty, or an integer.
    pub fn text(&self, field: &str) -> Option<SecretString> {
        match self.inner().get(field)? {
            Value::String(text) if !text.is_empty() => Some(SecretString::from(text.as_str())),
            // Of a fraction the digits that were written are lost.
            Value::Number(number) if !number.is_f64() => Some(SecretString::from(number.to_string())),
            _ => None,
        }
    }
}

/// A request for a secret: the path and the operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretRequest {
    /// Path without `/v1/`: `terraform/creds/ROLE`, `secret/data/PATH`, `secret/data/PATH?version=2`.
    pub path: String,
    /// Operation on the path.
    pub op: SecretOp,
}

/// Operation of a request for a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SecretOp {
    /// Read a stored secret, or have a dynamic one created.
    Read,
    /// List the names below the path, as `keys`.
    List,
    /// Send these fields, which may be secrets, and read the response.
    Write(BTreeMap<String, String>),
    /// Send this JSON object, whose fields are not all strings, and read the response.
    WriteObject(String),
}

impl SecretRequest {
    /// Creates a read of a path.
    pub fn read(path: impl Into<String>) -> Self {
        Self { path: path.into(), op: SecretOp::Read }
    }

    /// Returns true if each token has its own content there, so that a new token ends what was read.
    pub(crate) fn belongs_to_token(&self) -> bool {
        let (path, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let segments: Vec<&str> = path.split('/').collect();
        let is_of_self = |rest: &[&str]| matches!(rest, ["auth", "token", call] if call.ends_with("-self"));
        // A path may begin with a namespace.
        let at = |from: usize| {
            let rest = &segments[from..];
            is_of_self(rest) || matches!(rest, ["identity", "oidc", "token", _, ..])
        };
        !matches!(self.op, SecretOp::Write(_)) && (segments[0] == "cubbyhole" || (0..segments.len()).any(at))
    }
}

impl fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            SecretOp::Read => "read",
            SecretOp::List => "list",
            SecretOp::Write(_) | SecretOp::WriteObject(_) => "write",
        };
        write!(f, "{op} {}", self.path)
    }
}

impl fmt::Debug for SecretOp {
    /// The fields of a write may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "Read",
            Self::List => "List",
            Self::Write(_) => "Write",
            Self::WriteObject(_) => "WriteObject",
        })
    }
}

/// Response to a request for a secret.
#[derive(Debug, Clone)]
pub struct SecretResponse {
    /// Fields of the secret.
    pub data: Arc<SecretFields>,
    /// Lease; `None` for a static secret.
    pub lease: Option<SecretLease>,
    /// Time after which a static secret should be read again, if the server suggests one. Key-value version 1 has its field `ttl`
    /// here, else the server's default of 32 days.
    pub suggested_ttl: Option<Duration>,
}

/// Lease of a secret on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretLease {
    /// Lease id.
    pub(crate) id: String,
    /// Duration, and whether it can be renewed.
    pub lease: Lease,
}

impl ServerClient {
    /// Sends a request to exactly its path: a read (`GET PATH`), a list (`GET PATH?list=true`), or a write (`POST PATH`), whose
    /// fields `data` holds if `in_data` is true.
    ///
    /// A list of a path with nothing below it is empty.
    pub(super) async fn send_secret_request(
        &self,
        token: Option<&ClientToken>,
        secret_request: &SecretRequest,
        in_data: bool,
        namespace: Option<&str>,
    ) -> Result<SecretResponse, CallError> {
        // The text after a `?` is a query, such as the version of a value; the path before it is encoded by segment.
        let (path, query) = secret_request.path.split_once('?').unwrap_or((&secret_request.path, ""));
        let path = format!("v1/{path}");
        let query: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let request = |method: Method| {
            let request = match token {
                Some(token) => self.with_token(method, &path, token, namespace),
                None => self.request(method, &path, namespace),
            };
            if query.is_empty() { request } else { request.query(&query) }
        };
        let request = match &secret_request.op {
            SecretOp::Read => request(Method::GET),
            SecretOp::List => request(Method::GET).query(&[("list", "true")]),
            SecretOp::Write(fields) if in_data => request(Method::POST).json(&json!({ "data": fields })),
            SecretOp::Write(fields) => request(Method::POST).json(fields),
            SecretOp::WriteObject(object) => {
                let content_type = (http::header::CONTENT_TYPE, "application/json");
                request(Method::POST).header(content_type.0, content_type.1).body(object.clone())
            }
        };
        let response = self.send(request).await?;
        let none = SecretString::default();
        // Vault responds with 204 to writes that return nothing.
        if response.status == StatusCode::NO_CONTENT {
            return Err(CallError::NoSecret { what: "the response is empty" });
        }
        if secret_request.op == SecretOp::List && parse_response::is_empty_list(&response) {
            let data = Arc::new(SecretFields(Map::from_iter([("keys".to_owned(), json!([]))])));
            return Ok(SecretResponse { data, lease: None, suggested_ttl: None });
        }
        match parse_response::parse_json(&response, token.map_or(&none, ClientToken::secret)) {
            Err(CallError::Status { status: 404, errors, retry_after, date }) if errors.is_empty() => {
                Err(CallError::Status {
                    status: 404,
                    errors: vec![describe_not_found(&secret_request.path)],
                    retry_after,
                    date,
                })
            }
            response => secret(&mut response?),
        }
    }

    /// Renews a lease by its first duration (`PUT sys/leases/renew`), and returns the rest of it.
    pub(crate) async fn renew_lease(
        &self,
        token: &ClientToken,
        lease: &SecretLease,
        namespace: Option<&str>,
    ) -> Result<Lease, CallError> {
        let request = self.with_token(Method::PUT, "v1/sys/leases/renew", token, namespace);
        let body = json!({ "lease_id": lease.id, "increment": lease.lease.ttl.as_secs() });
        let response = self.send(request.json(&body)).await?;
        parse_lease(&parse_response::parse_json(&response, token.secret())?)
    }

    /// Revokes a lease (`PUT sys/leases/revoke`).
    pub async fn revoke_lease(
        &self,
        token: &ClientToken,
        lease: &SecretLease,
        namespace: Option<&str>,
    ) -> Result<(), CallError> {
        let request = self.with_token(Method::PUT, "v1/sys/leases/revoke", token, namespace);
        let response = self.send(request.json(&json!({ "lease_id": lease.id }))).await?;
        parse_response::check_status(&response, token.secret())
    }
}

/// Describes a response without `data`.
fn describe_missing_data(response: &Value) -> &'static str {
    let has_object = |name: &str| response.get(name).is_some_and(Value::is_object);
    if has_object("auth") {
        "the response holds a token; use [sink.NAME.derived_token] for tokens"
    } else if has_object("wrap_info") {
        "the response holds a wrapping token; use a sink for it"
    } else {
        "the response has no data"
    }
}

/// Describes a 404 without a message. A common cause is a path without `data/`, which some clients of key-value version 2
/// add.
fn describe_not_found(path: &str) -> String {
    match path.split_once('/') {
        // The path of a mount may have several segments.
        Some((mount, below)) if !below.split('/').any(|segment| matches!(segment, "data" | "metadata")) => {
            format!("nothing is there; in version 2 of key-value it would be {mount}/data/{below}")
        }
        _ => "nothing is there, or it was deleted".to_owned(),
    }
}

fn secret(response: &mut Value) -> Result<SecretResponse, CallError> {
    let id = match response.get("lease_id") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(id)) if id.len() <= 1024 && id.bytes().all(|byte| byte.is_ascii_graphic()) => id.clone(),
        Some(_) => return Err(invalid("lease_id is not a string of at most 1024 visible characters")),
    };
    let lease = if id.is_empty() { None } else { Some(SecretLease { id, lease: parse_lease(response)? }) };
    // Some servers issue leases without a duration, as for a role whose TTL is below a second. Such a lease would end at once, and be
    // requested again in a loop; without it the secret is read at the ordinary interval.
    let lease = lease.filter(|lease| !lease.lease.ttl.is_zero());
    let seconds =
        response.get("lease_duration").and_then(Value::as_u64).filter(|seconds| *seconds > 0 && lease.is_none());
    let suggested_ttl = seconds.map(Duration::from_secs);
    match response.get_mut("data").map(Value::take) {
        Some(Value::Object(data)) => Ok(SecretResponse { data: Arc::new(SecretFields(data)), lease, suggested_ttl }),
        _ => Err(CallError::NoSecret { what: describe_missing_data(response) }),
    }
}

/// Parses `lease_duration` and `renewable` at the top level of a response.
fn parse_lease(response: &Value) -> Result<Lease, CallError> {
    let Some(seconds) = response.get("lease_duration").and_then(Value::as_u64) else {
        return Err(invalid("lease_duration is not a whole number of seconds"));
    };
    let renewable = response.get("renewable").and_then(Value::as_bool).unwrap_or_default();
    Ok(Lease { ttl: Duration::from_secs(seconds).min(MAX_LEASE), renewable })
}

fn invalid(what: &str) -> CallError {
    CallError::InvalidResponse { what: what.to_owned() }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::server_client::TokenVerdict;

    #[test]
    fn a_secret_is_read_with_its_lease_and_out_of_a_versioned_store() {
        let check = |response: Value, field: &str, expected: Option<&str>, lease: Option<(&str, u64, bool)>| {
            let found = secret(&mut { response }).unwrap();
            assert_eq!(found.data.text(field).map(|text| text.expose_secret().to_owned()).as_deref(), expected);
            let found = found.lease.map(|found| (found.id, found.lease.ttl.as_secs(), found.lease.renewable));
            assert_eq!(found, lease.map(|(id, ttl, renewable)| (id.to_owned(), ttl, renewable)));
        };
        check(json!({ "lease_id": "", "lease_duration": 0, "data": { "token": "t" } }), "token", Some("t"), None);
        let leased = json!({ "lease_id": "a/b/c", "lease_duration": 60, "renewable": true, "data": { "token": "t" } });
        check(leased, "token", Some("t"), Some(("a/b/c", 60, true)));
        for (value, expected) in
            [(json!(5432), Some("5432")), (json!(-1), Some("-1")), (json!(1.5), None), (json!(true), None)]
        {
            check(json!({ "data": { "pin": value } }), "pin", expected, None);
        }
        let without_duration = json!({ "lease_id": "a/b/c", "lease_duration": 0, "data": { "token": "t" } });
        check(without_duration, "token", Some("t"), None);
        let versioned = json!({ "data": { "data": { "token": "t" }, "metadata": { "version": 3 } } });
        check(versioned, "token", Some("t"), None);
        // A secret of version 1 that resembles the envelope of version 2.
        check(json!({ "data": { "data": "t", "metadata": "m" } }), "data", Some("t"), None);
        check(json!({ "data": { "token": "", "count": 3 } }), "token", None, None);
        check(json!({ "data": { "count": 3 } }), "count", Some("3"), None);
    }

    #[test]
    fn paths_of_the_token_itself_are_known() {
        let check = |path: &str, expected: bool| {
            assert_eq!(SecretRequest::read(path).belongs_to_token(), expected, "{path}");
        };
        check("auth/token/lookup-self", true);
        check("team/auth/token/lookup-self?x=1", true);
        check("cubbyhole/app", true);
        check("identity/oidc/token/web", true);
        check("auth/token/lookup", false);
        check("secret/data/cubbyhole", false);
        check("identity/oidc/token", false);
        check("", false);
        let written = SecretOp::Write(BTreeMap::new());
        assert!(!SecretRequest { path: "identity/oidc/token/web".to_owned(), op: written }.belongs_to_token());
    }

    #[test]
    fn a_missing_secret_suggests_the_path_of_key_value_version_2() {
        assert!(describe_not_found("secret/web/app").ends_with("it would be secret/data/web/app"));
        assert_eq!(describe_not_found("secret/data/app?version=3"), "nothing is there, or it was deleted");
        assert_eq!(describe_not_found("team/kv/data/app"), "nothing is there, or it was deleted");
        assert_eq!(describe_not_found("cubbyhole"), "nothing is there, or it was deleted");
    }

    #[test]
    fn a_response_without_a_secret_is_reported_without_its_content() {
        for (response, expected) in [
            (json!({ "data": null }), "the response has no data"),
            (json!({}), "the response has no data"),
            (json!({ "data": "canary" }), "the response has no data"),
            (json!({ "data": null, "auth": { "client_token": "canary" } }), "the response holds a token"),
            (json!({ "data": null, "wrap_info": { "token": "canary" } }), "the response holds a wrapping token"),
        ] {
            let error = secret(&mut { response }).unwrap_err();
            assert_eq!(error.verdict(), TokenVerdict::Refused, "asking again does not help");
            let error = error.to_string();
            assert!(
                error.starts_with(&format!("the path holds no secret: {expected}")) && !error.contains("ary"),
                "{error}"
            );
        }
        for response in [
            json!({ "lease_id": "a", "lease_duration": "canary", "data": {} }),
            json!({ "lease_id": "can\nary", "lease_duration": 1, "data": {} }),
            json!({ "lease_id": 7, "data": {} }),
        ] {
            let error = secret(&mut { response }).unwrap_err().to_string();
            assert!(error.starts_with("invalid response from the server: ") && !error.contains("ary"), "{error}");
        }
        let data = SecretFields(json!({ "token": "canary" }).as_object().unwrap().clone());
        assert_eq!(format!("{data:?}"), "SecretFields");
    }
}
