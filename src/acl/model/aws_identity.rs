//! Verification of AWS principals: a request for the caller's identity that the login brings signed, and that AWS answers
//! (docs.aws.amazon.com, `GetCallerIdentity`). This module decides which requests may be sent, and which callers are admitted.
//!
//! The request is not passed on as it came: it is taken apart into the few parts that a signature needs, and anything else is refused.

mod error;

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value};
use time::PrimitiveDateTime;
use time::macros::format_description;

use super::azure_identity::VerifiedFacts;
use super::timestamp::Timestamp;

pub(crate) use error::AwsError;

/// Trust of an auth method in AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsTrust {
    /// Required value of the signed header `X-Vault-AWS-IAM-Server-ID`: a request for another server is worth nothing here.
    pub server_id: String,
    /// Regions whose endpoints of STS are called, beside the global one.
    pub regions: Vec<String>,
}

/// Principals that a role accepts, by exact values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsBounds {
    /// Numbers of accounts. Required: names of roles and users are unique within an account only.
    pub accounts: Vec<String>,
    /// Names of IAM roles.
    pub roles: Vec<String>,
    /// Names of IAM users.
    pub users: Vec<String>,
}

impl AwsBounds {
    /// Returns the error text if the bounds are invalid.
    pub fn validation_error(&self) -> Option<&'static str> {
        let Self { accounts, roles, users } = self;
        if accounts.is_empty() {
            Some("the role has no accounts and would admit every customer of AWS; set accounts")
        } else if accounts.iter().any(|number| number.len() != 12 || !number.bytes().all(|byte| byte.is_ascii_digit()))
        {
            Some("an entry of accounts is not the number of an account; write twelve digits in quotes")
        } else if roles.iter().chain(users).any(|name| !is_name(name)) {
            Some("an entry of roles or users is not a name; write it without path, ARN or \"*\"")
        } else {
            None
        }
    }
}

/// Returns true for a name of IAM (docs.aws.amazon.com, "IAM and AWS STS quotas").
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte))
}

/// Returns true if a text can be the name of a region, such as `eu-west-1`.
pub fn is_region(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(is_part) && !text.starts_with('-') && !text.ends_with('-')
}

/// Request of a login, in base64 as Vault's clients send it. Nothing in it is verified.
#[derive(Debug, Default)]
pub(crate) struct UnverifiedCallerRequest {
    /// `iam_http_request_method`.
    pub method: Option<String>,
    /// `iam_request_url`.
    pub url: Option<String>,
    /// `iam_request_body`.
    pub body: Option<String>,
    /// `iam_request_headers`.
    pub headers: Option<SecretString>,
}

/// The parts of a signed request that may be sent to STS.
#[derive(Debug)]
pub(crate) struct CallerRequest {
    /// Endpoint of STS, which is one of the allowed ones.
    pub endpoint: StsEndpoint,
    /// Headers by their names in lower case; each is one of [`ALLOWED_HEADERS`].
    pub headers: Vec<(&'static str, SecretString)>,
}

/// An endpoint of STS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StsEndpoint {
    /// Host.
    pub host: String,
    /// Region that requests are signed for.
    region: String,
}

/// The only body that is sent.
pub(crate) const BODY: &str = "Action=GetCallerIdentity&Version=2011-06-15";

const SERVER_ID: &str = "x-vault-aws-iam-server-id";

/// Headers that a login may bring, in lower case.
const ALLOWED_HEADERS: [&str; 6] =
    ["authorization", "content-length", "content-type", "x-amz-date", "x-amz-security-token", SERVER_ID];

/// Age of a signature. AWS accepts it for 15 minutes; what is stolen on its way is useful for a third of that.
const WINDOW: Duration = Duration::from_mins(5);

impl StsEndpoint {
    /// Returns the endpoint of a region; without one the global endpoint.
    fn of(region: Option<&str>) -> Self {
        let suffix = if region.is_some_and(|region| region.starts_with("cn-")) { ".cn" } else { "" };
        match region {
            None => Self { host: "sts.amazonaws.com".to_owned(), region: "us-east-1".to_owned() },
            Some(region) => Self { host: format!("sts.{region}.amazonaws.com{suffix}"), region: region.to_owned() },
        }
    }

    /// Returns the partition that the endpoint's accounts are in: the numbers of another one mean others.
    fn partition(&self) -> &'static str {
        match self.region.split('-').next() {
            Some("cn") => "aws-cn",
            _ if self.region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        }
    }
}

impl AwsTrust {
    /// Returns the endpoints of STS that may be called.
    fn endpoints(&self) -> impl Iterator<Item = StsEndpoint> {
        let regions = self.regions.iter().map(|region| Some(region.as_str()));
        [None].into_iter().chain(regions).map(StsEndpoint::of)
    }

    /// Takes a login's request apart.
    pub(crate) fn parse(
        &self,
        unverified: &UnverifiedCallerRequest,
        now: Timestamp,
    ) -> Result<CallerRequest, AwsError> {
        let required =
            |value: &Option<String>, name| value.clone().filter(|text| !text.is_empty()).ok_or(AwsError::Missing(name));
        if required(&unverified.method, "iam_http_request_method")? != "POST" {
            return Err(AwsError::Malformed("iam_http_request_method is not POST"));
        }
        let url =
            decode(&required(&unverified.url, "iam_request_url")?).ok_or(AwsError::Malformed("iam_request_url"))?;
        let endpoint = self.endpoints().find(|endpoint| {
            url.strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest))
                == Some(endpoint.host.as_str())
        });
        let endpoint = endpoint.ok_or(AwsError::Endpoint)?;
        let body = decode(&required(&unverified.body, "iam_request_body")?);
        if body.as_deref() != Some(BODY) {
            return Err(AwsError::Malformed("iam_request_body is not a request of GetCallerIdentity"));
        }
        let headers = unverified.headers.as_ref().filter(|text| !text.expose_secret().is_empty());
        let headers = headers.ok_or(AwsError::Missing("iam_request_headers"))?;
        let headers = parse_headers(headers.expose_secret())?;
        let get = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.expose_secret());
        let server_id = get(SERVER_ID).ok_or(AwsError::NoServerId)?;
        if server_id != self.server_id {
            return Err(AwsError::ServerId { expected: self.server_id.clone() });
        }
        let date = get("x-amz-date").ok_or(AwsError::Malformed("X-Amz-Date is missing"))?;
        check_time(date, now)?;
        let authorization = get("authorization").ok_or(AwsError::Malformed("Authorization is missing"))?;
        check_authorization(authorization, date, &endpoint, get("x-amz-security-token").is_some())?;
        Ok(CallerRequest { endpoint, headers })
    }
}

fn decode(base64: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(base64).ok()?).ok()
}

/// Parses the headers: an object of texts, or of lists of one text, with known names that occur once.
fn parse_headers(base64: &str) -> Result<Vec<(&'static str, SecretString)>, AwsError> {
    const MALFORMED: AwsError = AwsError::Malformed("iam_request_headers is not a JSON object of headers in base64");
    let object: Map<String, Value> =
        decode(base64).and_then(|text| serde_json::from_str(&text).ok()).ok_or(MALFORMED)?;
    let mut headers = Vec::new();
    for (name, value) in object {
        let lower = name.to_ascii_lowercase();
        let Some(known) = ALLOWED_HEADERS.into_iter().find(|known| *known == lower) else {
            // The host is that of the URL. Whatever else AWS could understand is not sent.
            if lower == "host" || lower == "user-agent" {
                continue;
            }
            return Err(AwsError::Header(name.chars().take(64).collect()));
        };
        let text = match &value {
            Value::String(text) => text,
            Value::Array(list) => match list.as_slice() {
                [Value::String(text)] => text,
                _ => return Err(MALFORMED),
            },
            _ => return Err(MALFORMED),
        };
        let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !is_plain || headers.iter().any(|(name, _)| *name == known) {
            return Err(MALFORMED);
        }
        headers.push((known, SecretString::from(text.as_str())));
    }
    Ok(headers)
}

/// Checks that a signature was made within the window.
fn check_time(date: &str, now: Timestamp) -> Result<(), AwsError> {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let time = PrimitiveDateTime::parse(date, format).map_err(|_| AwsError::Malformed("X-Amz-Date is not a time"))?;
    let time = Timestamp::from_system_time(SystemTime::from(time.assume_utc()));
    if now.since(time) > WINDOW {
        return Err(AwsError::Expired { date: date.to_owned() });
    }
    if time.since(now) > WINDOW {
        return Err(AwsError::NotYet { date: date.to_owned() });
    }
    Ok(())
}

/// Checks that the signature is of this endpoint, and that it covers what decides: host, time, server id and session.
///
/// AWS verifies the signature. A header that reads in two ways could be one thing here and another there, so that only the form that
/// AWS documents is accepted.
fn check_authorization(text: &str, date: &str, endpoint: &StsEndpoint, has_session: bool) -> Result<(), AwsError> {
    const MALFORMED: AwsError = AwsError::Malformed("Authorization is not a signature of version 4");
    let fields: Vec<(&str, &str)> = text
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or(MALFORMED)?
        .split(',')
        .filter_map(|field| field.trim_start_matches(' ').split_once('='))
        .collect();
    let [("Credential", scope), ("SignedHeaders", signed), ("Signature", signature)] = fields.as_slice() else {
        return Err(MALFORMED);
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if signature.len() != 64 || !signature.bytes().all(is_hex) || text.matches(',').count() != 2 {
        return Err(MALFORMED);
    }
    let scope: Vec<&str> = scope.split('/').collect();
    let [_, day, region, "sts", "aws4_request"] = scope.as_slice() else { return Err(MALFORMED) };
    if *region != endpoint.region || !date.starts_with(day) {
        return Err(AwsError::Scope);
    }
    let signed: Vec<&str> = signed.split(';').collect();
    let session = has_session.then_some("x-amz-security-token");
    match ["host", "x-amz-date", SERVER_ID].into_iter().chain(session).find(|name| !signed.contains(name)) {
        Some(name) => Err(AwsError::Unsigned(name)),
        None => Ok(()),
    }
}

/// Answer of STS in JSON.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    get_caller_identity_response: Response,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    get_caller_identity_result: Caller,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Caller {
    account: String,
    arn: String,
    user_id: String,
}

/// Verifies the caller that STS names against the bounds of a role.
pub(crate) fn verify_login(
    answer: &[u8],
    endpoint: &StsEndpoint,
    bounds: &AwsBounds,
) -> Result<VerifiedFacts, AwsError> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|_| AwsError::Answer)?;
    let Caller { account, arn, user_id } = answer.get_caller_identity_response.get_caller_identity_result;
    let parts: Vec<&str> = arn.split(':').collect();
    let ["arn", partition, service, "", arn_account, path] = parts.as_slice() else { return Err(AwsError::Answer) };
    if *partition != endpoint.partition() || *arn_account != account {
        return Err(AwsError::Answer);
    }
    let path: Vec<&str> = path.split('/').collect();
    let (kind, name, session) = match (*service, path.as_slice()) {
        ("sts", ["assumed-role", name, session]) => ("role", *name, Some(*session)),
        ("iam", ["user", .., name]) => ("user", *name, None),
        // The root user and federated users have no name that a bound could hold.
        _ => return Err(AwsError::Principal),
    };
    if !bounds.accounts.contains(&account) {
        return Err(AwsError::Account);
    }
    let is_unbound = bounds.roles.is_empty() && bounds.users.is_empty();
    let list = if kind == "role" { &bounds.roles } else { &bounds.users };
    // Without bounds no check above could reject.
    if bounds.validation_error().is_some() || !(is_unbound || list.iter().any(|bound| bound == name)) {
        return Err(AwsError::Principal);
    }
    let principal = user_id.split(':').next().unwrap_or_default();
    let facts = [
        ("principal_id", Some(principal)),
        ("account_id", Some(account.as_str())),
        ("principal_type", Some(kind)),
        ("principal_name", Some(name)),
        ("session_name", session),
    ];
    Ok(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect())
}

#[cfg(test)]
mod tests;
