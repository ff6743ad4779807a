//! Bounds of signed tokens: the checks of the real JWT auth method after its signature's, with its order and messages.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// Bounds of the claims of a token. Empty ones bind nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwtBounds {
    /// Issuer.
    pub issuer: String,
    /// Audiences, of which the token must have one.
    pub audiences: Vec<String>,
}

impl JwtBounds {
    /// Checks the claims of a token; returns the server's error. A text that is no token has no claims.
    pub(super) fn check(&self, jwt: &str, now: SystemTime) -> Result<(), &'static str> {
        let Some(claims) = decode(jwt) else { return Ok(()) };
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        if !self.issuer.is_empty() && self.issuer != text("iss") {
            return Err("invalid issuer (iss) claim");
        }
        let has = |audience: &String| match claims.get("aud") {
            Some(Value::String(one)) => one == audience,
            Some(Value::Array(many)) => many.iter().any(|one| one == audience),
            _ => false,
        };
        if !self.audiences.is_empty() && !self.audiences.iter().any(has) {
            return Err("invalid audience (aud) claim: audience claim does not match any expected audience");
        }
        let time = |name: &str| {
            let seconds = Duration::from_secs(claims.get(name)?.as_u64()?);
            SystemTime::UNIX_EPOCH.checked_add(seconds)
        };
        if time("nbf").is_some_and(|nbf| nbf > now + CLOCK_SKEW) {
            return Err("invalid not before (nbf) claim: token not yet valid");
        }
        if time("exp").is_some_and(|exp| exp + CLOCK_SKEW < now) {
            return Err("invalid expiration time (exp) claim: token is expired");
        }
        Ok(())
    }
}

/// Default of the real method's `clock_skew_leeway`.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

fn decode(jwt: &str) -> Option<Map<String, Value>> {
    let claims = jwt.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}
