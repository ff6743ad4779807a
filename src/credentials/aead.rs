//! Encrypts and authenticates bytes with AES-256-GCM.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;

/// AES-256-GCM key that takes a random nonce for each message.
pub struct AeadKey(RandomizedNonceKey);

impl std::fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AeadKey")
    }
}

impl AeadKey {
    /// Creates a key. The bytes must be random or derived from random bytes.
    pub fn new(key: &[u8; 32]) -> Result<Self, Unspecified> {
        RandomizedNonceKey::new(&AES_256_GCM, key).map(Self)
    }

    /// Encrypts `plain` and returns nonce, ciphertext and tag. Decryption needs the same `additional_data`.
    pub fn seal(&self, plain: &[u8], additional_data: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let mut sealed = Vec::with_capacity(plain.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(plain);
        let nonce = self.0.seal_in_place_append_tag(Aad::from(additional_data), &mut sealed)?;
        Ok([nonce.as_ref().as_slice(), sealed.as_slice()].concat())
    }

    /// Decrypts a message of [`AeadKey::seal`].
    pub fn open(&self, sealed: &[u8], additional_data: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
        let mut buffer = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce)?;
        let length = self.0.open_in_place(nonce, Aad::from(additional_data), &mut buffer)?.len();
        buffer.truncate(length);
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_is_detected() {
        let [seal, other] = [[1; 32], [2; 32]].map(|key| AeadKey::new(&key).unwrap());
        let sealed = seal.seal(b"hvs.canary", b"web").unwrap();
        assert_eq!(seal.open(&sealed, b"web").unwrap(), b"hvs.canary");
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        assert_ne!(sealed, seal.seal(b"hvs.canary", b"web").unwrap());
        assert!(seal.open(&sealed, b"wen").is_err());
        assert!(other.open(&sealed, b"web").is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(seal.open(&changed, b"web").is_err(), "byte {at}");
            assert!(seal.open(&sealed[..at], b"web").is_err(), "cut at {at}");
        }
    }
}
