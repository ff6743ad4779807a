//! Kinds of encrypted files, and the key of each: derived from a configured key, and bound to names.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use keyward_credentials::aead;
use keyward_machine::secret_string::SecretString;

/// Encryption key of a file, with the names that it is bound to.
#[derive(Debug)]
pub(super) struct SealingKey {
    key: aead::AeadKey,
    bound_to: Vec<u8>,
}

impl SealingKey {
    /// Derives the key for one kind of file from `text`, which should be random: this is no password hash. Data that was
    /// encrypted for other names in `bound_to` does not open.
    pub(super) fn new(text: &SecretString, kind: FileKind, bound_to: &[&str]) -> Result<Self, Unspecified> {
        let mut key = Zeroizing::new([0_u8; 32]);
        let derived = Salt::new(HKDF_SHA256, kind.name().as_bytes()).extract(text.expose_secret().as_bytes());
        derived.expand(&[b"seal 1"], KeyLength)?.fill(&mut *key)?;
        // The version of this encoding. The length of each name keeps neighbours from running into each other.
        let mut bound = vec![1];
        for name in bound_to {
            bound.extend_from_slice(&(name.len() as u64).to_be_bytes());
            bound.extend_from_slice(name.as_bytes());
        }
        Ok(Self { key: aead::AeadKey::new(&key)?, bound_to: bound })
    }

    /// Encrypts `plain`.
    pub(super) fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.key.seal(plain, &self.bound_to)
    }

    /// Decrypts the output of [`SealingKey::seal`].
    pub(super) fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.key.open(sealed, &self.bound_to)
    }

    /// Returns the additional data: an unambiguous encoding of the names that the key is bound to.
    pub(super) fn bound_to(&self) -> &[u8] {
        &self.bound_to
    }
}

struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        32
    }
}

/// Kind of an encrypted file; each derives a different key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// State of a session, of which only the token is encrypted.
    SessionState,
    /// Cached responses of the API proxy.
    CachedResponses,
    /// Secrets of templates.
    TemplateSecrets,
}

impl FileKind {
    /// Name of the kind, in the header and as the label of the key derivation. It never changes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SessionState => "keyward session state",
            Self::CachedResponses => "keyward cached responses",
            Self::TemplateSecrets => "keyward template secrets",
        }
    }

    /// Content of the file in log events.
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::SessionState => "the state of a session",
            Self::CachedResponses => "cached responses",
            Self::TemplateSecrets => "secrets of templates",
        }
    }

    /// Largest file that is read, in bytes: the content with JSON around it.
    pub(super) const fn max_size(self) -> u64 {
        match self {
            Self::SessionState => 256 * 1024,
            Self::CachedResponses | Self::TemplateSecrets => 4 * MAX_CONTENT as u64,
        }
    }
}

/// Bounds the content of a file, in bytes before encryption.
pub(crate) const MAX_CONTENT: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(key: &str, kind: FileKind, bound_to: &[&str]) -> SealingKey {
        SealingKey::new(&SecretString::from(key), kind, bound_to).unwrap()
    }

    #[test]
    fn data_opens_only_with_the_same_key_kind_and_names() {
        let names = ["web", "https://vault:8200", "role"];
        let sealed = seal("key", FileKind::SessionState, &names).seal(b"hvs.canary").unwrap();
        assert_eq!(seal("key", FileKind::SessionState, &names).open(&sealed).unwrap(), b"hvs.canary");
        assert!(seal("other", FileKind::SessionState, &names).open(&sealed).is_err());
        assert!(seal("key", FileKind::TemplateSecrets, &names).open(&sealed).is_err());
        assert!(seal("key", FileKind::SessionState, &["web", "https://vault:8200", "other"]).open(&sealed).is_err());
        assert!(seal("key", FileKind::SessionState, &["webh", "ttps://vault:8200", "role"]).open(&sealed).is_err());
    }
}
