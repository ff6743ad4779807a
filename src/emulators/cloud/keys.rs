//! RSA keys that sign tokens.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaParameters, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_credentials::jwt;
use serde_json::{Value, json};

use super::StartError;
use super::folder::PrivateDir;

/// An RS256 signing key.
#[derive(Debug)]
pub(super) struct SigningKey {
    pair: KeyPair,
    id: String,
}

impl SigningKey {
    /// Reads a key from its file, or creates it.
    pub(super) fn load_or_make(folder: &PrivateDir, name: &'static str) -> Result<Self, StartError> {
        let der = folder.read_or_make(name, || new_key().ok_or(StartError::Key { what: name }))?;
        Self::from_pkcs8(&der).ok_or(StartError::Key { what: name })
    }

    pub(super) fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let pair = KeyPair::from_pkcs8(der).ok()?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, pair.public_key().as_ref());
        let id = URL_SAFE_NO_PAD.encode(digest.as_ref());
        Some(Self { pair, id })
    }

    /// Signs a token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"typ": "JWT", "alg": "RS256", "x5t": self.id, "kid": self.id});
        let text = jwt::signing_input(&header, claims);
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the id by which tokens name the key (`kid`).
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the private key as PKCS#8.
    pub(super) fn to_pkcs8(&self) -> Option<Vec<u8>> {
        Some(self.pair.as_der().ok()?.as_ref().to_vec())
    }

    /// Verifies a signature of this key.
    pub(super) fn verify(&self, how: &'static RsaParameters, text: &str, signature: &[u8]) -> bool {
        UnparsedPublicKey::new(how, self.pair.public_key().as_ref()).verify(text.as_bytes(), signature).is_ok()
    }

    /// Returns the public key as a JWK (RFC 7517).
    pub(super) fn jwk(&self) -> Value {
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = self.pair.public_key();
        json!({
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.id, "x5t": self.id,
            "n": number(public.modulus().big_endian_without_leading_zero()),
            "e": number(public.exponent().big_endian_without_leading_zero()),
        })
    }
}

/// Generates an RSA key of 2048 bits, as PKCS#8.
pub(super) fn new_key() -> Option<Vec<u8>> {
    let pair = KeyPair::generate(KeySize::Rsa2048).ok()?;
    Some(pair.as_der().ok()?.as_ref().to_vec())
}
