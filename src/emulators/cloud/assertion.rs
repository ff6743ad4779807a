//! Client assertions: a service account's token from the emulated cluster, or a JWT signed with the service principal's
//! certificate.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaParameters};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::tokens::{Principal, seconds};
use super::{CloudIdentities, State};

/// Error of the authority: its number and message.
pub(super) struct AuthorityError {
    pub(super) code: u32,
    pub(super) message: String,
}

impl AuthorityError {
    pub(super) fn new(code: u32, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }
}

/// Audience of a federated token (learn.microsoft.com, "Workload identity federation").
pub(super) const EXCHANGE_AUDIENCE: &str = "api://AzureADTokenExchange";

struct Assertion<'a> {
    header: Map<String, Value>,
    claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

impl State {
    /// Returns the issuer of the emulated cluster's tokens.
    pub(super) fn cluster_issuer(&self) -> String {
        format!("{}cluster/", self.authority)
    }

    pub(super) fn check_assertion(&self, principal: Principal, assertion: &str) -> Result<(), AuthorityError> {
        let bad = |what: &str| AuthorityError::new(50_027, &format!("JWT token is invalid or malformed: {what}"));
        let assertion = Assertion::parse(assertion).ok_or_else(|| bad("it cannot be read"))?;
        let claim = |name: &str| assertion.claims.get(name);
        let text = |name: &str| claim(name).and_then(Value::as_str).unwrap_or_default();
        let time = |name: &str| claim(name).and_then(Value::as_i64);
        let algorithm = assertion.header.get("alg").and_then(Value::as_str).unwrap_or_default();
        let how: &'static RsaParameters = match algorithm {
            "RS256" => &RSA_PKCS1_2048_8192_SHA256,
            "PS256" => &RSA_PSS_2048_8192_SHA256,
            other => return Err(bad(&format!("algorithm '{other}'"))),
        };
        let now = seconds(self.clock.now().wall);
        if time("exp").is_none_or(|end| end <= now) || time("nbf").is_some_and(|start| start > now + LEEWAY) {
            let problem = format!("Client assertion is not within its valid time range. Current time: {now}");
            return Err(AuthorityError::new(700_024, &problem));
        }
        if matches!(principal, Principal::Workload) {
            if !self.cluster_key.verify(how, assertion.signed, &assertion.signature) {
                return Err(bad("signature"));
            }
            let issuer = text("iss");
            let subject = text("sub");
            let audience = EXCHANGE_AUDIENCE;
            let matches = issuer == self.cluster_issuer()
                && subject == CloudIdentities::SERVICE_ACCOUNT
                && claim("aud").is_some_and(|aud| contains_audience(aud, audience));
            if matches {
                return Ok(());
            }
            let problem = format!(
                "No matching federated identity record found for presented assertion. Issuer: '{issuer}'. \
                 Subject: '{subject}'"
            );
            return Err(AuthorityError::new(70_021, &problem));
        }
        let thumbprint = assertion.header.get("x5t#S256").and_then(Value::as_str);
        let is_own = thumbprint == Some(self.certificate.thumbprint.as_str())
            && self.certificate.key.verify(how, assertion.signed, &assertion.signature);
        if !is_own {
            return Err(AuthorityError::new(700_027, "The certificate with this identifier is not registered"));
        }
        let client = &self.identities.application.client_id;
        let endpoint = format!("{}oauth2/v2.0/token", self.issuer());
        let made_out = text("iss") == client && text("sub") == client;
        if made_out && claim("aud").is_some_and(|aud| contains_audience(aud, &endpoint)) && claim("jti").is_some() {
            Ok(())
        } else {
            Err(AuthorityError::new(700_023, "Client assertion audience, issuer or subject does not match"))
        }
    }
}

impl<'a> Assertion<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Self { header: object(header)?, claims: object(claims)?, signed, signature })
    }
}

/// Returns true if an `aud` claim (a string or an array) contains an audience.
fn contains_audience(aud: &Value, expected: &str) -> bool {
    match aud {
        Value::String(one) => one == expected,
        Value::Array(many) => many.iter().any(|one| one == expected),
        _ => false,
    }
}

/// Seconds that `nbf` may be ahead of the authority's clock.
const LEEWAY: i64 = 300;
