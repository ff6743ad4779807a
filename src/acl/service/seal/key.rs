//! One sealing key: keyed hash and encryption of secrets.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyward_credentials::aead::AeadKey;

use crate::model::id::Id;
use crate::model::secret::{PlainSecret, SealedSecret, SecretHash};

/// Hashes and encrypts secrets with keys derived from one line of the key file.
pub(crate) struct SealKey {
    id: String,
    hash: hmac::Key,
    seal: AeadKey,
    login: AeadKey,
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
        let login = AeadKey::new(derive(b"keyward acl: login").as_ref().try_into().ok()?).ok()?;
        let hash = hmac::Key::new(hmac::HMAC_SHA256, derive(b"keyward acl: hash").as_ref());
        Some(Self { id, hash, seal, login })
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

    /// Encrypts a login that has begun, as text for a URL. It decrypts for the same `method` only, at all servers of the
    /// store, and in no place where a token's secret does.
    pub(crate) fn seal_login(&self, method: &str, plain: &[u8]) -> Result<String, SealError> {
        let sealed = self.login.seal(plain, method.as_bytes()).map_err(|_| SealError)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Decrypts the text of [`SealKey::seal_login`].
    pub(crate) fn open_login(&self, method: &str, sealed: &str) -> Result<Vec<u8>, SealError> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| SealError)?;
        self.login.open(&sealed, method.as_bytes()).map_err(|_| SealError)
    }
}

/// Encryption or decryption failed: wrong key, wrong token, or damaged data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot encrypt or decrypt a token's secret with the server's key")]
pub struct SealError;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_login_opens_as_it_was_sealed_and_no_other_text_opens(
            plain in proptest::collection::vec(any::<u8>(), 0..300),
            method in "[ -~]{0,40}",
            at in any::<prop::sample::Index>(),
            other in any::<char>(),
            noise in "\\PC{0,200}",
        ) {
            let [key, second] = [[1; 32], [2; 32]].map(|key| SealKey::derive(&key).unwrap());
            let sealed = key.seal_login(&method, &plain).unwrap();
            prop_assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
            prop_assert_eq!(key.open_login(&method, &sealed), Ok(plain));
            prop_assert_eq!(key.open_login(&format!("{method}x"), &sealed), Err(SealError));
            prop_assert_eq!(second.open_login(&method, &sealed), Err(SealError));
            prop_assert_eq!(key.open_login(&method, &noise), Err(SealError));
            let at = at.index(sealed.len());
            let altered: String = sealed.chars().enumerate().map(|(place, own)| if place == at { other } else { own }).collect();
            if altered != sealed {
                prop_assert_eq!(key.open_login(&method, &altered), Err(SealError), "{} at {}", other, at);
            }
            prop_assert_eq!(key.open_login(&method, &sealed[..at]), Err(SealError));
        }
    }

    #[test]
    fn a_sealed_login_is_no_sealed_secret() {
        let key = SealKey::derive(&[1; 32]).unwrap();
        let accessor = Id::random();
        let secret = key.seal(accessor, &PlainSecret::random()).unwrap();
        let text = URL_SAFE_NO_PAD.encode(STANDARD.decode(secret.sealed).unwrap());
        assert_eq!(key.open_login(&accessor.to_string(), &text), Err(SealError));
    }

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
