//! Seals a token into bytes that only the same session with the same key can open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

/// A key, and what it is bound to.
pub(super) struct Seal {
    key: RandomizedNonceKey,
    bound_to: Vec<u8>,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

impl Seal {
    /// Derives the key from `text`, which should be random: this is no password hash. What was sealed for other names
    /// in `bound_to` does not open.
    pub(super) fn new(text: &SecretString, bound_to: &[&str]) -> Result<Self, Unspecified> {
        let mut key = Zeroizing::new([0_u8; 32]);
        let derived = Salt::new(HKDF_SHA256, b"keyward session state").extract(text.expose_secret().as_bytes());
        derived.expand(&[b"seal 1"], KeyLength)?.fill(&mut *key)?;
        let mut bound = vec![1];
        for name in bound_to {
            bound.extend_from_slice(&(name.len() as u64).to_be_bytes());
            bound.extend_from_slice(name.as_bytes());
        }
        Ok(Self { key: RandomizedNonceKey::new(&AES_256_GCM, &*key)?, bound_to: bound })
    }

    /// The sealed form of `plain`: nonce, ciphertext, tag.
    pub(super) fn close(&self, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        // Room for all from the start: a buffer that grows leaves copies behind.
        let mut sealed = Zeroizing::new(Vec::with_capacity(plain.len() + AES_256_GCM.tag_len()));
        sealed.extend_from_slice(plain);
        let nonce = self.key.seal_in_place_append_tag(Aad::from(&self.bound_to), &mut *sealed)?;
        Ok([nonce.as_ref().as_slice(), sealed.as_slice()].concat())
    }

    /// The plain form of what [`Seal::close`] gave.
    pub(super) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
        let mut buffer = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::try_assume_unique_for_key(nonce)?;
        let length = self.key.open_in_place(nonce, Aad::from(&self.bound_to), &mut buffer)?.len();
        buffer.truncate(length);
        Ok(buffer)
    }
}

struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(key: &str, bound_to: &[&str]) -> Seal {
        Seal::new(&SecretString::from(key), bound_to).unwrap()
    }

    #[test]
    fn only_the_same_key_and_the_same_names_open_what_was_sealed() {
        let names = ["web", "https://vault:8200", "role"];
        let sealed = seal("key", &names).close(b"hvs.canary").unwrap();
        assert_eq!(&**seal("key", &names).open(&sealed).unwrap(), b"hvs.canary");
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        assert_ne!(sealed, seal("key", &names).close(b"hvs.canary").unwrap());
        assert!(seal("other", &names).open(&sealed).is_err());
        assert!(seal("key", &["web", "https://vault:8200", "other"]).open(&sealed).is_err());
        assert!(seal("key", &["webh", "ttps://vault:8200", "role"]).open(&sealed).is_err());
    }

    #[test]
    fn a_single_changed_bit_anywhere_is_noticed() {
        let seal = seal("key", &["web"]);
        let sealed = seal.close(b"hvs.canary").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(seal.open(&changed).is_err(), "byte {at}");
            assert!(seal.open(&sealed[..at]).is_err(), "cut at {at}");
        }
    }
}
