//! Seals a token into bytes that only the same session with the same key can open.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::seal;

/// A key, and what it is bound to.
#[derive(Debug)]
pub(super) struct Seal {
    seal: seal::Seal,
    bound_to: Vec<u8>,
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
        Ok(Self { seal: seal::Seal::new(&key)?, bound_to: bound })
    }

    /// The sealed form of `plain`.
    pub(super) fn close(&self, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.seal.close(plain, &self.bound_to)
    }

    /// The plain form of what [`Seal::close`] gave.
    pub(super) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        self.seal.open(sealed, &self.bound_to)
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
        assert!(seal("other", &names).open(&sealed).is_err());
        assert!(seal("key", &["web", "https://vault:8200", "other"]).open(&sealed).is_err());
        assert!(seal("key", &["webh", "ttps://vault:8200", "role"]).open(&sealed).is_err());
    }
}
