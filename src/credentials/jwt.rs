//! Reads the claims of JSON Web Tokens without verification, and builds the input of their signatures (RFC 7515, RFC
//! 7519).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

/// Claims of a token whose signature was not verified: for messages and defaults, never for trust.
///
/// A claim that is missing or has an unexpected type is `None`, so that an odd claim never stops a login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnverifiedClaims {
    /// Audiences; one or several.
    pub aud: Vec<String>,
    /// Issuer.
    pub iss: Option<String>,
    /// Version of the token's form, `1.0` or `2.0`.
    pub ver: Option<String>,
    /// Expiry.
    pub exp: Option<SystemTime>,
    /// Start of validity.
    pub nbf: Option<SystemTime>,
    /// Time of issue.
    pub iat: Option<SystemTime>,
    /// Object id of the identity.
    pub oid: Option<String>,
    /// Client id of the identity (`appid`, or `azp` in tokens of version 2.0).
    pub appid: Option<String>,
    /// Tenant.
    pub tid: Option<String>,
    /// Type of the identity, `app` or `user`.
    pub idtyp: Option<String>,
    /// Resource id of the managed identity; for a system-assigned one that of the machine.
    pub xms_mirid: Option<String>,
    /// Resource id of the machine that a user-assigned identity was used on.
    pub xms_az_rid: Option<String>,
}

/// Largest token that is parsed, in bytes. Real ones with many groups stay under 10 KiB.
pub(crate) const MAX_TOKEN: usize = 64 * 1024;

impl UnverifiedClaims {
    /// Reads the claims of a compact JWS.
    pub fn decode(token: &str) -> Result<Self, InvalidJwt> {
        if token.len() > MAX_TOKEN {
            return Err(InvalidJwt::TooLarge);
        }
        let mut parts = token.split('.');
        let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(InvalidJwt::Parts);
        };
        let claims = TOLERANT.decode(claims).map_err(|_| InvalidJwt::Encoding)?;
        let claims: Map<String, Value> = serde_json::from_slice(&claims).map_err(|_| InvalidJwt::Json)?;
        Ok(Self::from_claims(&claims))
    }

    fn from_claims(claims: &Map<String, Value>) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        let time = |name: &str| claims.get(name).and_then(seconds);
        let aud = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        Self {
            aud,
            iss: text("iss"),
            ver: text("ver"),
            exp: time("exp"),
            nbf: time("nbf"),
            iat: time("iat"),
            oid: text("oid"),
            appid: text("appid").or_else(|| text("azp")),
            tid: text("tid"),
            idtyp: text("idtyp"),
            xms_mirid: text("xms_mirid"),
            xms_az_rid: text("xms_az_rid"),
        }
    }
}

/// Builds the signing input of a JWS: header and claims, encoded and joined by a dot (RFC 7515, 5.1).
pub fn signing_input(header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

/// Reason why a string is not a token. Never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJwt {
    /// Larger than [`MAX_TOKEN`].
    #[error("it is larger than {MAX_TOKEN} bytes")]
    TooLarge,
    /// Not header, claims and signature.
    #[error("it does not have three parts separated by dots")]
    Parts,
    /// Claims that are not base64url.
    #[error("its claims are not base64url")]
    Encoding,
    /// Claims that are not a JSON object.
    #[error("its claims are not a JSON object")]
    Json,
}

/// Parses a `NumericDate` (RFC 7519): a number, with or without a fraction, or a number in a string. Returns `None` for
/// a time after the year 9999, which RFC 3339 cannot express.
fn seconds(value: &Value) -> Option<SystemTime> {
    let seconds = match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole_seconds))?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (seconds <= END_OF_9999).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

const END_OF_9999: u64 = 253_402_300_799;

fn whole_seconds(number: f64) -> Option<u64> {
    Duration::try_from_secs_f64(number).ok().map(|span| span.as_secs())
}

const TOLERANT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn token(claims: &Value) -> String {
        format!("{}.c2ln", signing_input(&json!({"alg": "RS256"}), claims))
    }

    fn at(seconds: u64) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    }

    #[test]
    fn a_real_tokens_claims_are_read() {
        let claims = UnverifiedClaims::decode(&token(&json!({
            "aud": "https://management.azure.com/", "iss": "https://sts.windows.net/t/", "ver": "1.0", "oid": "o",
            "appid": "a", "tid": "t", "idtyp": "app", "iat": 1, "nbf": 2, "exp": 3, "xms_mirid": "/m", "xms_az_rid": "/r",
        })))
        .unwrap();
        let text = |text: &str| Some(text.to_owned());
        let expected = UnverifiedClaims {
            aud: vec!["https://management.azure.com/".to_owned()],
            iss: text("https://sts.windows.net/t/"),
            ver: text("1.0"),
            exp: at(3),
            nbf: at(2),
            iat: at(1),
            oid: text("o"),
            appid: text("a"),
            tid: text("t"),
            idtyp: text("app"),
            xms_mirid: text("/m"),
            xms_az_rid: text("/r"),
        };
        assert_eq!(claims, expected);
    }

    #[test]
    fn odd_claims_are_ignored_one_by_one() {
        let check = |claims: Value, expected: UnverifiedClaims| {
            assert_eq!(UnverifiedClaims::decode(&token(&claims)).unwrap(), expected, "{claims}");
        };
        let none = UnverifiedClaims::default;
        check(json!({"aud": ["a", 1, "b"]}), UnverifiedClaims { aud: vec!["a".into(), "b".into()], ..none() });
        check(json!({"aud": {"a": 1}, "iss": 7, "tid": null}), none());
        check(json!({"exp": "12", "nbf": 12.9, "iat": -1}), UnverifiedClaims { exp: at(12), nbf: at(12), ..none() });
        check(json!({"exp": u64::MAX, "nbf": 1e300, "iat": "soon"}), none());
        check(json!({"exp": i64::MAX, "nbf": "253402300800", "iat": 1e18}), none());
        check(json!({"exp": END_OF_9999}), UnverifiedClaims { exp: at(END_OF_9999), ..none() });
        check(json!({"azp": "client"}), UnverifiedClaims { appid: Some("client".into()), ..none() });
    }

    #[test]
    fn an_invalid_token_is_rejected_without_quoting_it() {
        let check = |text: &str, expected| assert_eq!(UnverifiedClaims::decode(text), Err(expected), "{text}");
        check("", InvalidJwt::Parts);
        check("a.b", InvalidJwt::Parts);
        check("a.b.c.d", InvalidJwt::Parts);
        check("a.!.c", InvalidJwt::Encoding);
        check(&format!("a.{}.c", URL_SAFE_NO_PAD.encode("[1]")), InvalidJwt::Json);
        check(&"a".repeat(MAX_TOKEN + 1), InvalidJwt::TooLarge);
        let padded = format!("a.{}.c", base64::engine::general_purpose::URL_SAFE.encode(r#"{"iss":"i"}"#));
        assert!(padded.contains('=') && UnverifiedClaims::decode(&padded).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(text in "[a-zA-Z0-9_.=-]{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = UnverifiedClaims::decode(&text);
            let _ = UnverifiedClaims::decode(&format!("a.{}.b", URL_SAFE_NO_PAD.encode(bytes)));
        }
    }
}
