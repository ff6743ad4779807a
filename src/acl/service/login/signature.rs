//! Verifies the signature of an identity token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::LoginError;
use crate::model::auth_method::Algorithm;
use crate::service::issuer_keys::IssuerKeys;

/// Returns the claims of a token if its signature is valid. The header only selects the key; if `must_name_key` is
/// false, tokens without a key id are tried with all keys that fit.
pub(super) async fn signed_claims<T: DeserializeOwned>(
    unverified_jwt: &SecretString,
    keys: &IssuerKeys,
    allowed: &[Algorithm],
    must_name_key: bool,
) -> Result<T, LoginError> {
    let unverified_jwt = unverified_jwt.expose_secret();
    let unverified_header = unverified_header(unverified_jwt).ok_or(LoginError::Malformed)?;
    // The token chooses among the allowed ones only: not `none`, nor HMAC with a public key (RFC 8725, 3.1).
    let algorithm = Algorithm::parse(&unverified_header.alg).filter(|algorithm| allowed.contains(algorithm));
    let Some(algorithm) = algorithm else {
        let expected: Vec<_> = allowed.iter().map(|algorithm| algorithm.as_str()).collect();
        let found = unverified_header.alg.chars().take(32).collect();
        return Err(LoginError::Algorithm { expected: expected.join(", "), found });
    };
    // Critical header extensions must be rejected if unknown (RFC 7515, 4.1.11).
    if unverified_header.has_crit {
        return Err(LoginError::Malformed);
    }
    let unverified_key_id = unverified_header.kid;
    if must_name_key && unverified_key_id.is_none() {
        return Err(LoginError::NoKeyId);
    }
    let candidates = keys.get(unverified_key_id.as_deref(), algorithm).await?;

    // Issuer, audience and times are verified with the other claims, by our clock.
    let mut signature_alone = Validation::new(to_jsonwebtoken(algorithm));
    signature_alone.required_spec_claims.clear();
    signature_alone.validate_exp = false;
    signature_alone.validate_nbf = false;
    signature_alone.validate_aud = false;
    for key in &candidates {
        match jsonwebtoken::decode::<T>(unverified_jwt, key, &signature_alone) {
            Ok(signed) => return Ok(signed.claims),
            // The signature is verified before the claims are parsed, so another key would not help.
            Err(error) if matches!(error.kind(), ErrorKind::Json(_)) => return Err(LoginError::Claims),
            Err(_) => {}
        }
    }
    Err(LoginError::Signature)
}

const fn to_jsonwebtoken(algorithm: Algorithm) -> jsonwebtoken::Algorithm {
    match algorithm {
        Algorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
        Algorithm::Rs384 => jsonwebtoken::Algorithm::RS384,
        Algorithm::Rs512 => jsonwebtoken::Algorithm::RS512,
        Algorithm::Es256 => jsonwebtoken::Algorithm::ES256,
        Algorithm::Es384 => jsonwebtoken::Algorithm::ES384,
        Algorithm::Ps256 => jsonwebtoken::Algorithm::PS256,
    }
}

#[derive(Deserialize)]
struct UnverifiedHeader {
    alg: String,
    kid: Option<String>,
    #[serde(default, rename = "crit", deserialize_with = "is_present")]
    has_crit: bool,
}

/// Returns true for any value, `null` too, which an `Option` would take for an absent one.
fn is_present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(value).map(|_| true)
}

fn unverified_header(jwt: &str) -> Option<UnverifiedHeader> {
    let mut parts = jwt.split('.');
    // Three parts are a signed JWT (RFC 7515, 7.1), five an encrypted one (RFC 7516, 7.1).
    let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()
}
