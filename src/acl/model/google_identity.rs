//! Verification of machines of Google Cloud by the signed claims of their identity tokens
//! (cloud.google.com, "Verifying the identity of instances").

use super::azure_identity::{Audience, IssuerConfig, VerifiedFacts};
use super::jwt_rules::Claims;
use super::timestamp::Timestamp;

/// Issuer of Google's tokens.
pub const GOOGLE_ISSUER: &str = "https://accounts.google.com";

/// Machines that a role accepts. An empty list accepts all; otherwise one entry must be equal, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoogleBounds {
    /// Ids of projects.
    pub projects: Vec<String>,
    /// Zones, such as `europe-west1-b`.
    pub zones: Vec<String>,
    /// Numeric ids of machines. Unlike names they are never given again.
    pub instance_ids: Vec<String>,
    /// Service accounts, by unique id or e-mail.
    pub service_accounts: Vec<String>,
}

impl GoogleBounds {
    /// Returns the error text if the bounds are invalid.
    pub fn validation_error(&self) -> Option<&'static str> {
        let Self { projects, zones, instance_ids, service_accounts } = self;
        let all = [projects, zones, instance_ids, service_accounts];
        if [projects, instance_ids, service_accounts].into_iter().all(Vec::is_empty) {
            Some("the role has no bounds and would admit machines of every customer of Google; set projects")
        } else if all.into_iter().flatten().any(|entry| entry.is_empty() || entry.contains('*')) {
            Some("a bound is empty or has a \"*\"; omit the list to leave it unbound")
        } else if instance_ids.iter().any(|id| !id.bytes().all(|byte| byte.is_ascii_digit())) {
            Some("an entry of instance_ids is a name, which another project may have too; write the numeric id")
        } else {
            None
        }
    }
}

/// Error of verifying claims, in the wording of Vault's auth plugin where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GoogleClaimsError {
    /// The issuer differs.
    #[error("id token issued by a different provider, expected {expected:?} got {found:?}")]
    Issuer {
        /// Trusted issuer.
        expected: String,
        /// Value of the token.
        found: String,
    },
    /// The audience differs.
    #[error("expected audience {expected:?} got {found}")]
    Audience {
        /// Accepted audience.
        expected: String,
        /// Value of the token.
        found: Audience,
    },
    /// `exp` is missing or past.
    #[error("JWT is expired or does not have proper 'exp' claim")]
    Expired,
    /// The token does not name a machine.
    #[error("expected JWT to have claims with GCE metadata")]
    NoMachine,
    /// A claim is missing or has the wrong type.
    #[error("the claim {0:?} is missing or has the wrong type")]
    Claim(&'static str),
    /// A bound does not have the value.
    #[error("the {0} is not in bound values of the role")]
    NotBound(&'static str),
}

/// Verifies a login against the bounds of a role. All facts are signed claims.
///
/// Times have no leeway, as for Azure.
pub(crate) fn verify_login(
    claims: &Claims,
    trust: &IssuerConfig,
    bounds: &GoogleBounds,
    now: Timestamp,
) -> Result<VerifiedFacts, GoogleClaimsError> {
    let text = |name: &'static str| {
        let value = claims.get(name).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
        value.ok_or(GoogleClaimsError::Claim(name))
    };
    let issuer = text("iss")?;
    if issuer != trust.issuer {
        return Err(GoogleClaimsError::Issuer { expected: trust.issuer.clone(), found: issuer.to_owned() });
    }
    let audience: Option<Audience> = claims.get("aud").and_then(|aud| serde_json::from_value(aud.clone()).ok());
    let audience = audience.ok_or(GoogleClaimsError::Claim("aud"))?;
    if !audience.contains(&trust.audience) {
        return Err(GoogleClaimsError::Audience { expected: trust.audience.clone(), found: audience });
    }
    let end = claims.get("exp").and_then(serde_json::Value::as_u64).ok_or(GoogleClaimsError::Expired)?;
    if end <= now.unix_seconds() {
        return Err(GoogleClaimsError::Expired);
    }
    let account = text("sub")?;
    // An e-mail counts only if Google says that it is the account's.
    let is_verified = claims.get("email_verified").and_then(serde_json::Value::as_bool) == Some(true);
    let email = if is_verified { text("email").ok() } else { None };
    let machine = claims.get("google").and_then(|google| google.get("compute_engine"));
    let machine = machine.ok_or(GoogleClaimsError::NoMachine)?;
    let field = |name: &'static str| {
        let value = machine.get(name).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
        value.ok_or(GoogleClaimsError::Claim(name))
    };
    let (project, zone, instance) = (field("project_id")?, field("zone")?, field("instance_id")?);
    let bound = |name, list: &[String], values: &[Option<&str>]| {
        let fits = values.iter().flatten().any(|value| list.iter().any(|entry| entry == value));
        if list.is_empty() || fits { Ok(()) } else { Err(GoogleClaimsError::NotBound(name)) }
    };
    bound("project", &bounds.projects, &[Some(project)])?;
    bound("zone", &bounds.zones, &[Some(zone)])?;
    bound("instance", &bounds.instance_ids, &[Some(instance)])?;
    bound("service account", &bounds.service_accounts, &[Some(account), email])?;
    // Last: without bounds no check above could reject.
    if bounds.validation_error().is_some() {
        return Err(GoogleClaimsError::NotBound("machine"));
    }
    let facts = [
        ("principal_id", Some(account)),
        ("service_account", email),
        ("project_id", Some(project)),
        ("zone", Some(zone)),
        ("instance_id", Some(instance)),
        ("instance_name", field("instance_name").ok()),
    ];
    Ok(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;

    fn claims() -> Value {
        json!({
            "iss": GOOGLE_ISSUER, "aud": "http://vault/web", "exp": 10_100, "sub": "1001",
            "email": "web@p-1.iam.gserviceaccount.com", "email_verified": true,
            "google": { "compute_engine": {
                "project_id": "p-1", "zone": "z-1", "instance_id": "42", "instance_name": "web-1" }},
        })
    }

    fn verify(claims: &Value, bounds: &GoogleBounds) -> Result<VerifiedFacts, String> {
        let trust = IssuerConfig { issuer: GOOGLE_ISSUER.to_owned(), audience: "http://vault/web".to_owned() };
        let now = Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(10_000));
        verify_login(claims.as_object().unwrap(), &trust, bounds, now).map_err(|error| error.to_string())
    }

    fn list(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|entry| (*entry).to_owned()).collect()
    }

    fn of_project() -> GoogleBounds {
        GoogleBounds { projects: list(&["p-1"]), ..GoogleBounds::default() }
    }

    #[test]
    fn a_machine_is_admitted_by_bounds_that_all_fit() {
        let all = GoogleBounds {
            zones: list(&["z-0", "z-1"]),
            instance_ids: list(&["42"]),
            service_accounts: list(&["web@p-1.iam.gserviceaccount.com"]),
            ..of_project()
        };
        let facts = verify(&claims(), &all).unwrap();
        assert_eq!((facts["principal_id"].as_str(), facts["instance_name"].as_str()), ("1001", "web-1"));
        let check = |bounds: GoogleBounds, expected: &str| {
            let error = verify(&claims(), &bounds).err().unwrap_or_default();
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{bounds:?}: {error}");
        };
        check(of_project(), "");
        check(GoogleBounds { service_accounts: list(&["1001"]), ..GoogleBounds::default() }, "");
        check(GoogleBounds { projects: list(&["P-1"]), ..all.clone() }, "the project is not in bound");
        check(GoogleBounds { projects: list(&["p-10"]), ..all.clone() }, "the project is not in bound");
        check(GoogleBounds { zones: list(&["z"]), ..all.clone() }, "the zone is not in bound");
        check(GoogleBounds { instance_ids: list(&["4"]), ..all.clone() }, "the instance is not in bound");
        check(GoogleBounds { service_accounts: list(&["web@p-1"]), ..all }, "the service account is not in bound");
        check(GoogleBounds::default(), "the machine is not in bound");
        check(GoogleBounds { zones: list(&["z-1"]), ..GoogleBounds::default() }, "the machine is not in bound");
    }

    #[test]
    fn claims_must_be_googles_for_this_audience_and_name_a_machine() {
        let check = |pointer: &str, value: Value, expected: &str| {
            let mut claims = claims();
            *claims.pointer_mut(pointer).unwrap() = value;
            let error = verify(&claims, &of_project()).err().unwrap_or_default();
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{pointer}: {error}");
        };
        check("/iss", json!("accounts.google.com"), "issued by a different provider");
        check("/iss", Value::Null, "\"iss\" is missing");
        check("/aud", json!("http://vault/web/"), "expected audience");
        check("/aud", json!(["http://vault/web"]), "");
        check("/aud", Value::Null, "\"aud\" is missing");
        check("/exp", json!(10_000), "JWT is expired");
        check("/exp", json!("10100"), "JWT is expired");
        check("/sub", json!(""), "\"sub\" is missing");
        check("/google", json!({}), "GCE metadata");
        check("/google/compute_engine/project_id", json!(["p-1"]), "\"project_id\" is missing");
        let mut claims = claims();
        claims["email_verified"] = json!("true");
        let by_email = GoogleBounds { service_accounts: list(&["web@p-1.iam.gserviceaccount.com"]), ..of_project() };
        assert!(verify(&claims, &by_email).is_err(), "an e-mail that Google has not verified is no bound value");
        assert!(!verify(&claims, &of_project()).unwrap().contains_key("service_account"));
    }

    #[test]
    fn bounds_that_would_admit_every_customer_are_invalid() {
        let check = |bounds: GoogleBounds, expected: Option<&str>| {
            let error = bounds.validation_error();
            assert_eq!(error.is_some(), expected.is_some(), "{bounds:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{error:?}");
        };
        check(of_project(), None);
        check(GoogleBounds::default(), Some("no bounds"));
        check(GoogleBounds { zones: list(&["z-1"]), ..GoogleBounds::default() }, Some("no bounds"));
        check(GoogleBounds { projects: list(&["*"]), ..GoogleBounds::default() }, Some("\"*\""));
        check(GoogleBounds { zones: list(&[""]), ..of_project() }, Some("is empty"));
        check(GoogleBounds { instance_ids: list(&["web-1"]), ..of_project() }, Some("numeric id"));
    }
}
