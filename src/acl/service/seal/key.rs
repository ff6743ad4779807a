//! One sealing key: keyed hash and encryption of secrets.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_credentials::aead::AeadKey;

use crate::model::id::Id;
use crate::model::secret::{PlainSecret, SealedSecret, SecretHash};

/// Hashes and encrypts secrets with keys derived from one line of the key file.
pub(crate) struct SealKey {
    id: String,
    hash: hmac::Key,
    seal: AeadKey,
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SealKey({})", self.id)
    }
}

impl SealKey {
    /// Derives the keys; `None` if the crypto library fails.
    pub(super) fn derive(key: &[u8; 32]) -> Option<Self> {
        let master = hmac::Key::new(hmac::HMAC_SHA256, key);
        // One key for each purpose, none of which can be computed from another.
        let derive = |purpose: &[u8]| hmac::sign(&master, purpose);
        // 48 bits are enough to tell the few keys of a file apart.
        let id = STANDARD.encode(&derive(b"keyward acl: key id").as_ref()[..6]);
        let seal = AeadKey::new(derive(b"keyward acl: seal").as_ref().try_into().ok()?).ok()?;
        let hash = hmac::Key::new(hmac::HMAC_SHA256, derive(b"keyward acl: hash").as_ref());
        Some(Self { id, hash, seal })
    }

    /// Returns the key id that records store; it reveals nothing of the key.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the keyed hash by which a token is found.
    pub(crate) fn hash(&self, secret: &PlainSecret) -> SecretHash {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hmac::sign(&self.hash, secret.reveal().as_bytes()).as_ref());
        SecretHash::new(bytes)
    }

    /// Encrypts the secret of a token. The accessor is additional authenticated data, so it decrypts for this token
    /// only.
    pub(crate) fn seal(&self, accessor: Id, secret: &PlainSecret) -> Result<SealedSecret, SealError> {
        let sealed = self.seal.seal(secret.reveal().as_bytes(), accessor.to_string().as_bytes());
        let sealed = STANDARD.encode(sealed.map_err(|_| SealError)?);
        Ok(SealedSecret { key_id: self.id.clone(), sealed })
    }

    /// Decrypts a sealed secret.
    pub(crate) fn unseal(&self, accessor: Id, sealed: &SealedSecret) -> Result<PlainSecret, SealError> {
        self.unseal_text(accessor, sealed).map(|text| PlainSecret::from_presented(&text))
    }

    /// Decrypts a sealed secret that a response shows: protected memory costs more than the decryption.
    pub(crate) fn unseal_text(&self, accessor: Id, sealed: &SealedSecret) -> Result<String, SealError> {
        let sealed = STANDARD.decode(&sealed.sealed).map_err(|_| SealError)?;
        let plain = self.seal.open(&sealed, accessor.to_string().as_bytes()).map_err(|_| SealError)?;
        String::from_utf8(plain).map_err(|_| SealError)
    }
}

/// Encryption or decryption failed: wrong key, wrong token, or damaged data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot encrypt or decrypt a token's secret with the server's key")]
pub struct SealError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_decrypts_only_with_its_key_and_for_its_token() {
        let [key, other] = [[1; 32], [2; 32]].map(|key| SealKey::derive(&key).unwrap());
        let accessor = Id::random();
        let secret = PlainSecret::random();
        let sealed = key.seal(accessor, &secret).unwrap();
        assert_eq!(key.unseal(accessor, &sealed).unwrap().reveal(), secret.reveal());
        assert_ne!(key.seal(accessor, &secret).unwrap(), sealed);
        assert_eq!(key.unseal(Id::random(), &sealed).unwrap_err(), SealError);
        assert_eq!(other.unseal(accessor, &sealed).unwrap_err(), SealError);
        for damaged in ["", "AAAA", "!", &sealed.sealed.replacen(char::is_alphabetic, "+", 1)] {
            let damaged = SealedSecret { sealed: damaged.to_owned(), ..sealed.clone() };
            assert_eq!(key.unseal(accessor, &damaged).unwrap_err(), SealError);
        }
        assert_eq!(key.hash(&secret), key.hash(&secret));
        assert_ne!(key.hash(&secret), other.hash(&secret));
        assert_ne!(key.id(), other.id());
    }
}
