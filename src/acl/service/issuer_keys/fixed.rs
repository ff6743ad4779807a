//! Public keys given in the configuration.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    VerificationAlgorithm,
};
use jsonwebtoken::DecodingKey;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;

use super::{IssuerKey, KeyType};

/// Error: the text holds no supported public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a PEM public key (\"-----BEGIN PUBLIC KEY-----\") for RSA of at least 2048 bits, P-256 or P-384")]
pub(crate) struct PemError;

/// Parses the public keys of a PEM text, at least one.
pub(crate) fn pem_keys(text: &str) -> Result<Vec<IssuerKey>, PemError> {
    let keys: Vec<_> = SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes()).collect();
    if keys.is_empty() {
        return Err(PemError);
    }
    keys.into_iter().map(|der| key(&der.map_err(|_| PemError)?)).collect()
}

fn key(der: &[u8]) -> Result<IssuerKey, PemError> {
    let is = |algorithm: &'static dyn VerificationAlgorithm| ParsedPublicKey::new(algorithm, der).is_ok();
    // RFC 7518, 3.3: RSA keys have 2048 bits or more.
    let (key_type, key) = if is(&RSA_PKCS1_2048_8192_SHA256) {
        (KeyType::Rsa, DecodingKey::from_rsa_der(der))
    } else if is(&ECDSA_P256_SHA256_FIXED) {
        (KeyType::P256, DecodingKey::from_ec_der(der))
    } else if is(&ECDSA_P384_SHA384_FIXED) {
        (KeyType::P384, DecodingKey::from_ec_der(der))
    } else {
        return Err(PemError);
    };
    Ok(IssuerKey { id: None, algorithm: None, key_type, key })
}
