//! The three forms of a token's secret as distinct types, so that none can be used as another.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;
use serde::{Deserialize, Serialize};

use super::id::Id;

/// Placeholder for secrets that a caller may not read.
pub(crate) const REDACTED: &str = "<hidden>";

/// Plain secret. Never stored, and not shown by `Debug`.
#[derive(Debug, Clone)]
pub(crate) struct PlainSecret(SecretString);

impl PlainSecret {
    /// Returns a new random UUID, the format that Consul's clients expect.
    pub(crate) fn random() -> Self {
        Self(SecretString::from(Id::random().to_string()))
    }

    /// Wraps a secret from a request. UUIDs are normalized to lower case, in which tokens are created.
    pub(crate) fn from_presented(text: &str) -> Self {
        if text.bytes().any(|byte| byte.is_ascii_uppercase())
            && let Ok(id) = text.parse::<Id>()
        {
            return Self(SecretString::from(id.to_string()));
        }
        Self(SecretString::from(text))
    }

    /// Returns the secret, to serialize or hash it.
    pub(crate) fn reveal(&self) -> &str {
        SecretString::expose_secret(&self.0)
    }
}

/// Keyed hash of a secret, the index of its token. Reveals nothing without the key.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct SecretHash([u8; 32]);

impl SecretHash {
    /// Wraps a computed hash.
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the hexadecimal form for store keys.
    pub(crate) fn to_hex(&self) -> String {
        encode_hex(&self.0)
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretHash")
    }
}

impl TryFrom<String> for SecretHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 32];
        match STANDARD.decode_slice(text, &mut bytes) {
            Ok(32) => Ok(Self(bytes)),
            _ => Err("a secret's hash is 32 bytes in base64"),
        }
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> Self {
        STANDARD.encode(hash.0)
    }
}

/// Secret encrypted with the server's key: callers with the privilege can read it, and a copy of the store without the
/// key reveals nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedSecret {
    /// Id of the key.
    pub key_id: String,
    /// Nonce and ciphertext, in base64.
    pub sealed: String,
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealedSecret(key {})", self.key_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_shows_the_secret_or_its_hash() {
        let plain = PlainSecret::random();
        let hash = SecretHash::new([0xab; 32]);
        let shown = format!("{plain:?} {hash:?}");
        assert!(!shown.contains(plain.reveal()) && !shown.contains("abab"), "{shown}");
        assert_eq!(hash.to_hex(), "ab".repeat(32));
        assert_eq!(SecretHash::try_from(String::from(hash.clone())), Ok(hash));
        assert!(SecretHash::try_from("YWJj".to_owned()).is_err());
    }

    #[test]
    fn a_uuid_is_the_same_secret_in_letters_of_either_case() {
        let check =
            |presented: &str, expected: &str| assert_eq!(PlainSecret::from_presented(presented).reveal(), expected);
        check("6A1253D2-1785-24fd-91c2-F8E78C745511", "6a1253d2-1785-24fd-91c2-f8e78c745511");
        check("6a1253d2-1785-24fd-91c2-f8e78c745511", "6a1253d2-1785-24fd-91c2-f8e78c745511");
        check("No-UUID", "No-UUID");
        check("", "");
    }
}
