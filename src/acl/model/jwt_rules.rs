//! Verification of the claims of a JWT whose signature is valid.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::azure_identity::{Audience, ClaimsError};
use super::timestamp::Timestamp;
use super::verified_claims::VerifiedClaims;

/// Claims of a token whose signature is valid, by name.
pub(crate) type Claims = Map<String, Value>;

/// Rules that the claims must meet, and the mapping of claims to values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JwtRules {
    /// Required issuer; any issuer that has the key if `None`.
    pub issuer: Option<String>,
    /// Accepted audiences. If empty, the token must have none.
    pub audiences: Vec<String>,
    /// Single-value mappings: claim name, or JSON pointer starting with a slash, to value name.
    pub values: BTreeMap<String, String>,
    /// List mappings, in the same form.
    pub lists: BTreeMap<String, String>,
    /// Lifetime, from issuance, of a token without expiration.
    pub expiration_leeway: Duration,
    /// Time before the expiration at which a token without start and issuance time becomes valid.
    pub not_before_leeway: Duration,
    /// Tolerated difference between the issuer's clock and ours.
    pub clock_skew: Duration,
}

impl JwtRules {
    /// Returns the value names of the mappings.
    pub(crate) fn claim_names(&self) -> VerifiedClaims {
        VerifiedClaims::empty(self.values.values().map(String::as_str), self.lists.values().map(String::as_str))
    }

    /// Verifies claims and returns the mapped values.
    pub(crate) fn verify(&self, claims: &Claims, now: Timestamp) -> Result<VerifiedClaims, ClaimsError> {
        let issuer = match claims.get("iss").filter(|claim| !claim.is_null()) {
            None => "",
            Some(claim) => claim.as_str().ok_or_else(|| invalid_claim("iss"))?,
        };
        if let Some(expected) = self.issuer.as_ref().filter(|expected| *expected != issuer) {
            return Err(ClaimsError::Issuer { expected: expected.clone(), found: issuer.to_owned() });
        }
        let audience: Audience = match claims.get("aud").filter(|claim| !claim.is_null()) {
            None => Audience::default(),
            Some(claim) => serde_json::from_value(claim.clone()).map_err(|_| invalid_claim("aud"))?,
        };
        if self.audiences.is_empty() {
            // A token for another audience must not be accepted.
            if audience != Audience::default() {
                return Err(ClaimsError::NoAudiences);
            }
        } else if !self.audiences.iter().any(|expected| audience.contains(expected)) {
            return Err(ClaimsError::Audience { expected: self.audiences.join(", "), found: audience });
        }
        self.check_times(claims, now)?;
        self.map_claims(claims)
    }

    fn check_times(&self, claims: &Claims, now: Timestamp) -> Result<(), ClaimsError> {
        let [issued_at, start, end] = ["iat", "nbf", "exp"].map(|name| seconds(claims, name));
        let issued_at = issued_at?;
        let start = start?;
        let end = end?;
        let now = now.unix_seconds();
        let latest = now.saturating_add(self.clock_skew.as_secs());
        let earliest = now.saturating_sub(self.clock_skew.as_secs());
        let end = match (end, issued_at.max(start)) {
            (Some(end), _) => end,
            (None, Some(begin)) => begin.saturating_add(self.expiration_leeway.as_secs()),
            (None, None) => return Err(ClaimsError::MissingTimes),
        };
        if end <= earliest {
            return Err(ClaimsError::Expired { end });
        }
        let start = start.or(issued_at).unwrap_or_else(|| end.saturating_sub(self.not_before_leeway.as_secs()));
        match issued_at.into_iter().chain([start]).max().filter(|begin| *begin > latest) {
            Some(start) => Err(ClaimsError::NotYetValid { start, now }),
            None => Ok(()),
        }
    }

    fn map_claims(&self, claims: &Claims) -> Result<VerifiedClaims, ClaimsError> {
        let mut verified = self.claim_names();
        for (claim, name) in &self.values {
            if let Some(value) = get_claim(claims, claim) {
                verified.values.insert(name.clone(), Some(text(value).ok_or_else(|| invalid_claim(claim))?));
            }
        }
        for (claim, name) in &self.lists {
            let Some(value) = get_claim(claims, claim) else { continue };
            let list: Option<Vec<String>> = match value {
                Value::Array(list) => list.iter().map(text).collect(),
                single => text(single).map(|single| vec![single]),
            };
            let mut list = list.ok_or_else(|| invalid_claim(claim))?;
            // As in Consul, so that `is empty` says the same.
            list.retain(|entry| !entry.is_empty());
            verified.lists.insert(name.clone(), Some(list));
        }
        Ok(verified)
    }
}

fn invalid_claim(name: &str) -> ClaimsError {
    ClaimsError::Claim { name: name.chars().take(128).collect() }
}

/// Returns the claim by name or JSON pointer; `None` if missing or `null`.
fn get_claim<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    let claim = match name.strip_prefix('/') {
        None => claims.get(name),
        Some(path) => {
            let (first, rest) =
                path.split_once('/').map_or((path, String::new()), |(first, rest)| (first, format!("/{rest}")));
            let first = first.replace("~1", "/").replace("~0", "~");
            claims.get(&first).and_then(|value| value.pointer(&rest))
        }
    };
    claim.filter(|value| !value.is_null())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Reads a `NumericDate` in whole seconds since 1970 (RFC 7519, 2: it may have a fraction).
fn seconds(claims: &Claims, name: &str) -> Result<Option<u64>, ClaimsError> {
    let Some(value) = claims.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    // The cast saturates at the ends of the range.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut off on purpose")]
    let fraction = |number: f64| (number >= 0.0).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(fraction)).map(Some).ok_or_else(|| invalid_claim(name))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;

    fn rules() -> JwtRules {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        JwtRules {
            issuer: Some("https://issuer".into()),
            audiences: vec!["us".into(), "we".into()],
            values: map(&[("first_name", "name"), ("/org/primary", "org"), ("admin", "admin"), ("/a~1b/0", "slash")]),
            lists: map(&[("groups", "groups"), ("/org/roles", "roles")]),
            expiration_leeway: Duration::from_secs(150),
            not_before_leeway: Duration::from_secs(150),
            clock_skew: Duration::from_mins(1),
        }
    }

    fn verified(rules: &JwtRules, change: &[(&str, Value)]) -> Result<VerifiedClaims, String> {
        let mut claims = json!({"iss": "https://issuer", "aud": "us", "exp": 10_100, "iat": 9_900});
        let claims = claims.as_object_mut().unwrap();
        claims.extend(change.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let now = Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(10_000));
        rules.verify(claims, now).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn claims_must_match_issuer_audience_and_times() {
        let check = |change: &[(&str, Value)], expected: &str| {
            let found = verified(&rules(), change).err().unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{change:?}: {found}");
        };
        let none = Value::Null;
        check(&[], "");
        check(&[("iss", json!("https://issuer/"))], "issued by a different provider");
        check(&[("iss", none.clone())], "issued by a different provider");
        check(&[("iss", json!(["https://issuer"]))], "\"iss\" has the wrong type");
        check(&[("aud", json!(["x", "we"]))], "");
        check(&[("aud", json!("x"))], "expected audience \"us, we\"");
        check(&[("aud", none.clone())], "expected audience");
        check(&[("aud", json!(7))], "\"aud\" has the wrong type");
        check(&[("exp", json!(9_941))], "");
        check(&[("exp", json!(9_941.9))], "");
        check(&[("exp", json!(9_940))], "token is expired");
        check(&[("exp", json!(-1))], "\"exp\" has the wrong type");
        check(&[("exp", json!("x"))], "\"exp\" has the wrong type");
        check(&[("nbf", json!(10_060))], "");
        check(&[("nbf", json!(10_061))], "before the nbf");
        check(&[("iat", json!(10_061))], "before the nbf");
        check(&[("exp", json!(1e300))], "");
        // Without expiration: 150 s after issuance, with 60 s of clock skew.
        check(&[("exp", none.clone()), ("iat", json!(9_791))], "");
        check(&[("exp", none.clone()), ("iat", json!(9_790))], "token is expired");
        check(&[("exp", none.clone()), ("iat", json!(9_000)), ("nbf", json!(9_791))], "");
        check(&[("exp", none.clone()), ("iat", none.clone())], "none of the claims");
        // Without start: 150 s before the expiration.
        check(&[("iat", none.clone()), ("exp", json!(10_210))], "");
        check(&[("iat", none.clone()), ("exp", json!(10_211))], "before the nbf");
        let nobody = JwtRules { audiences: vec![], issuer: None, ..rules() };
        assert_eq!(verified(&nobody, &[]).unwrap_err(), "audience claim found in JWT but no audiences are bound");
        assert!(verified(&nobody, &[("aud", none.clone()), ("iss", none)]).is_ok());
    }

    #[test]
    fn only_mapped_claims_are_returned() {
        let change = [
            ("first_name", json!("Jeff")),
            ("org", json!({"primary": "engineering", "roles": "one"})),
            ("admin", json!(true)),
            ("a/b", json!([7])),
            ("groups", json!(["foo", 1, "", false])),
            ("other", json!("x")),
        ];
        let known = verified(&rules(), &change).unwrap();
        let values = [("admin", "true"), ("name", "Jeff"), ("org", "engineering"), ("slash", "7")];
        let values: BTreeMap<_, _> = values.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into();
        assert_eq!(known.values, values);
        let list = |entries: &[&str]| Some(entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>());
        assert_eq!(known.lists["groups"], list(&["foo", "1", "false"]));
        assert_eq!(known.lists["roles"], list(&["one"]));
        assert_eq!(verified(&rules(), &[]).unwrap(), rules().claim_names());
        assert_eq!(rules().claim_names().values.len(), 4);
        for (name, value) in [("first_name", json!({})), ("groups", json!([["x"]])), ("admin", json!([true]))] {
            let refusal = verified(&rules(), &[(name, value)]).unwrap_err();
            assert!(refusal.contains(name), "{refusal}");
        }
    }
}
