//! Whom an auth method of type `jwt` lets in, judged on the signed claims alone, and what is known of them then.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::azure_identity::{Audience, Refusal};
use super::timestamp::Timestamp;
use super::verified_claims::Known;

/// Claims of a token whose signature holds, by name.
pub type Claims = Map<String, Value>;

/// What the claims of a token must say, and what is taken from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwtRules {
    /// Who must have made the token; anyone who has the key, if `None`.
    pub issuer: Option<String>,
    /// Whom it must be for one of. Where there are none it may be for nobody.
    pub audiences: Vec<String>,
    /// Claims that are texts: the name of a claim (or a JSON pointer, which begins with a slash) to the name of a value.
    pub values: BTreeMap<String, String>,
    /// Claims that are lists, in the same way.
    pub lists: BTreeMap<String, String>,
    /// Life of a token that does not say when it ends, from when it was made.
    pub expiration_leeway: Duration,
    /// How long before its end a token starts that does not say when it does, nor when it was made.
    pub not_before_leeway: Duration,
    /// How far the issuer's clock and ours may differ.
    pub clock_skew: Duration,
}

impl JwtRules {
    /// The names of what is taken from the claims.
    pub fn blank(&self) -> Known {
        Known::blank(self.values.values().map(String::as_str), self.lists.values().map(String::as_str))
    }

    /// Judges claims, and takes from them what is to be known.
    ///
    /// # Errors
    /// The first rule that they do not meet.
    pub fn judge(&self, claims: &Claims, now: Timestamp) -> Result<Known, Refusal> {
        let issuer = match claims.get("iss").filter(|claim| !claim.is_null()) {
            None => "",
            Some(claim) => claim.as_str().ok_or_else(|| wrong("iss"))?,
        };
        if let Some(wanted) = self.issuer.as_ref().filter(|wanted| *wanted != issuer) {
            return Err(Refusal::Issuer { wanted: wanted.clone(), found: issuer.to_owned() });
        }
        let audience: Audience = match claims.get("aud").filter(|claim| !claim.is_null()) {
            None => Audience::default(),
            Some(claim) => serde_json::from_value(claim.clone()).map_err(|_| wrong("aud"))?,
        };
        if self.audiences.is_empty() {
            // A token that was made for someone else is not for us.
            if audience != Audience::default() {
                return Err(Refusal::NoAudiences);
            }
        } else if !self.audiences.iter().any(|wanted| audience.contains(wanted)) {
            return Err(Refusal::Audience { wanted: self.audiences.join(", "), found: audience });
        }
        self.in_time(claims, now)?;
        self.known(claims)
    }

    fn in_time(&self, claims: &Claims, now: Timestamp) -> Result<(), Refusal> {
        let [made, start, end] = ["iat", "nbf", "exp"].map(|name| seconds(claims, name));
        let (made, start, end) = (made?, start?, end?);
        let now = now.unix_seconds();
        let latest = now.saturating_add(self.clock_skew.as_secs());
        let earliest = now.saturating_sub(self.clock_skew.as_secs());
        let end = match (end, made.max(start)) {
            (Some(end), _) => end,
            (None, Some(begin)) => begin.saturating_add(self.expiration_leeway.as_secs()),
            (None, None) => return Err(Refusal::NoTimes),
        };
        if end <= earliest {
            return Err(Refusal::Expired { end });
        }
        let start = start.or(made).unwrap_or_else(|| end.saturating_sub(self.not_before_leeway.as_secs()));
        match made.into_iter().chain([start]).max().filter(|begin| *begin > latest) {
            Some(start) => Err(Refusal::NotYet { start, now }),
            None => Ok(()),
        }
    }

    fn known(&self, claims: &Claims) -> Result<Known, Refusal> {
        let mut known = self.blank();
        for (claim, name) in &self.values {
            if let Some(value) = find(claims, claim) {
                known.values.insert(name.clone(), text(value).ok_or_else(|| wrong(claim))?);
            }
        }
        for (claim, name) in &self.lists {
            let Some(value) = find(claims, claim) else { continue };
            let list: Option<Vec<String>> = match value {
                Value::Array(list) => list.iter().map(text).collect(),
                single => text(single).map(|single| vec![single]),
            };
            known.lists.insert(name.clone(), list.ok_or_else(|| wrong(claim))?);
        }
        Ok(known)
    }
}

fn wrong(name: &str) -> Refusal {
    Refusal::Claim { name: name.chars().take(128).collect() }
}

/// The claim of that name, or at that place; `None` if it is not there or `null`.
fn find<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    let found = match name.strip_prefix('/') {
        None => claims.get(name),
        Some(path) => {
            let (first, rest) =
                path.split_once('/').map_or((path, String::new()), |(it, rest)| (it, format!("/{rest}")));
            let first = first.replace("~1", "/").replace("~0", "~");
            claims.get(&first).and_then(|value| value.pointer(&rest))
        }
    };
    found.filter(|value| !value.is_null())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// A time in whole seconds since 1970 (RFC 7519, 2: it may have a fraction).
fn seconds(claims: &Claims, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(value) = claims.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    // A float is cut off at the ends of the range.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut off on purpose")]
    let fraction = |number: f64| (number >= 0.0).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(fraction)).map(Some).ok_or_else(|| wrong(name))
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

    fn judged(rules: &JwtRules, change: &[(&str, Value)]) -> Result<Known, String> {
        let mut claims = json!({"iss": "https://issuer", "aud": "us", "exp": 10_100, "iat": 9_900});
        let claims = claims.as_object_mut().unwrap();
        claims.extend(change.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let now = Timestamp::of(UNIX_EPOCH + Duration::from_secs(10_000));
        rules.judge(claims, now).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn claims_are_held_to_issuer_audience_and_time() {
        let check = |change: &[(&str, Value)], wanted: &str| {
            let found = judged(&rules(), change).err().unwrap_or_default();
            assert!(found.contains(wanted) && found.is_empty() == wanted.is_empty(), "{change:?}: {found}");
        };
        let none = Value::Null;
        check(&[], "");
        check(&[("iss", json!("https://issuer/"))], "issued by a different provider");
        check(&[("iss", none.clone())], "issued by a different provider");
        check(&[("iss", json!(["https://issuer"]))], "\"iss\" is not of the type");
        check(&[("aud", json!(["x", "we"]))], "");
        check(&[("aud", json!("x"))], "expected audience \"us, we\"");
        check(&[("aud", none.clone())], "expected audience");
        check(&[("aud", json!(7))], "\"aud\" is not of the type");
        check(&[("exp", json!(9_941))], "");
        check(&[("exp", json!(9_941.9))], "");
        check(&[("exp", json!(9_940))], "token is expired");
        check(&[("exp", json!(-1))], "\"exp\" is not of the type");
        check(&[("exp", json!("x"))], "\"exp\" is not of the type");
        check(&[("nbf", json!(10_060))], "");
        check(&[("nbf", json!(10_061))], "before the nbf");
        check(&[("iat", json!(10_061))], "before the nbf");
        check(&[("exp", json!(1e300))], "");
        // Without an end: 150 s from when it was made, and the clocks may differ by 60.
        check(&[("exp", none.clone()), ("iat", json!(9_791))], "");
        check(&[("exp", none.clone()), ("iat", json!(9_790))], "token is expired");
        check(&[("exp", none.clone()), ("iat", json!(9_000)), ("nbf", json!(9_791))], "");
        check(&[("exp", none.clone()), ("iat", none.clone())], "none of the claims");
        // Without a start: 150 s before its end.
        check(&[("iat", none.clone()), ("exp", json!(10_210))], "");
        check(&[("iat", none.clone()), ("exp", json!(10_211))], "before the nbf");
        let nobody = JwtRules { audiences: vec![], issuer: None, ..rules() };
        assert_eq!(judged(&nobody, &[]).unwrap_err(), "audience claim found in JWT but no audiences are bound");
        assert!(judged(&nobody, &[("aud", none.clone()), ("iss", none)]).is_ok());
    }

    #[test]
    fn what_is_mapped_is_known_and_nothing_else() {
        let change = [
            ("first_name", json!("Jeff")),
            ("org", json!({"primary": "engineering", "roles": "one"})),
            ("admin", json!(true)),
            ("a/b", json!([7])),
            ("groups", json!(["foo", 1, false])),
            ("other", json!("x")),
        ];
        let known = judged(&rules(), &change).unwrap();
        let values = [("admin", "true"), ("name", "Jeff"), ("org", "engineering"), ("slash", "7")];
        let values: BTreeMap<_, _> = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(known.values, values);
        assert_eq!(known.lists["groups"], ["foo", "1", "false"]);
        assert_eq!(known.lists["roles"], ["one"]);
        assert_eq!(judged(&rules(), &[]).unwrap(), rules().blank());
        assert_eq!(rules().blank().values.len(), 4);
        for (name, value) in [("first_name", json!({})), ("groups", json!([["x"]])), ("admin", json!([true]))] {
            let refusal = judged(&rules(), &[(name, value)]).unwrap_err();
            assert!(refusal.contains(name), "{refusal}");
        }
    }
}
