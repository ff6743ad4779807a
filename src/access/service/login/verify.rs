//! The signature of a cloud identity's token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::LoginError;
use crate::access::model::cloud::SignedClaims;
use crate::access::service::keys::Keys;

/// The claims of a token, once its signature holds. Which key is looked up is all that its header decides.
pub(super) async fn signed_claims(unverified_jwt: &SecretString, keys: &Keys) -> Result<SignedClaims, LoginError> {
    let unverified_jwt = unverified_jwt.expose_secret();
    let unverified_header = unverified_header(unverified_jwt).ok_or(LoginError::Malformed)?;
    if unverified_header.alg != "RS256" {
        return Err(LoginError::Algorithm(unverified_header.alg.chars().take(32).collect()));
    }
    // An extension that must be understood, and that nobody here knows (RFC 7515, 4.1.11).
    if unverified_header.crit.is_some() {
        return Err(LoginError::Malformed);
    }
    let unverified_key_id = unverified_header.kid.ok_or(LoginError::NoKeyId)?;
    let key = keys.get(&unverified_key_id).await?;

    // Issuer, audience and time are judged with the rest of the claims, by our clock.
    let mut signature_alone = Validation::new(Algorithm::RS256);
    signature_alone.required_spec_claims.clear();
    signature_alone.validate_exp = false;
    signature_alone.validate_nbf = false;
    signature_alone.validate_aud = false;
    match jsonwebtoken::decode::<SignedClaims>(unverified_jwt, &key, &signature_alone) {
        Ok(signed) => Ok(signed.claims),
        Err(error) if matches!(error.kind(), ErrorKind::Json(_)) => Err(LoginError::Claims),
        Err(_) => Err(LoginError::Signature),
    }
}

#[derive(Deserialize)]
struct UnverifiedHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<serde_json::Value>,
}

fn unverified_header(jwt: &str) -> Option<UnverifiedHeader> {
    let mut parts = jwt.split('.');
    let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()
}
