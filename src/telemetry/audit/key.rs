//! Keys of one audit device: for the chain of its records, and for hashed values.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use keyward_machine::secret_string::SecretString;

use crate::hex::{decode_hex, encode_hex, encode_hex_byte};

/// Keys derived from the configured audit key. Each use has its own, since a server chooses the accessors that are hashed.
pub struct AuditKey {
    chain: hmac::Key,
    values: hmac::Key,
}

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey")
    }
}

impl AuditKey {
    /// Derives the keys from `text`, which should be random: this is not a password hash.
    pub fn new(text: &SecretString) -> Self {
        let root = hmac::Key::new(HMAC_SHA256, text.expose_secret().as_bytes());
        let derive = |label: &[u8]| hmac::Key::new(HMAC_SHA256, hmac::sign(&root, label).as_ref());
        Self { chain: derive(b"keyward audit 1 chain"), values: derive(b"keyward audit 1 values") }
    }

    /// Computes the MAC of a record: over the MAC of the record before it, and the record's own bytes.
    pub(super) fn sign(&self, previous: &Mac, body: &[u8]) -> Mac {
        let mut context = hmac::Context::with_key(&self.chain);
        context.update(&previous.0);
        context.update(body);
        let mut mac = Mac::default();
        mac.0.copy_from_slice(context.sign().as_ref());
        mac
    }

    /// Hashes a value in the form of Vault's audit log, such as `hmac-sha256:ab12...`.
    pub fn hash(&self, value: &str) -> String {
        format!("hmac-sha256:{}", encode_hex(hmac::sign(&self.values, value.as_bytes()).as_ref()))
    }
}

/// MAC of a record: HMAC-SHA256.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mac([u8; 32]);

impl PartialEq for Mac {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Mac {
    /// Parses 64 hexadecimal digits in lower case.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut mac = Self::default();
        // A MAC has one form, so that a line cannot be changed without a finding.
        let is_lower = !text.iter().any(u8::is_ascii_uppercase);
        (is_lower && decode_hex(text, &mut mac.0)).then_some(mac)
    }

    /// Formats the MAC as 64 hexadecimal digits.
    pub(super) fn hex(&self) -> String {
        encode_hex(&self.0)
    }

    /// Returns the same digits without a string for them.
    pub(super) fn digits(&self) -> [u8; 64] {
        let mut digits = [0; 64];
        for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(self.0) {
            *pair = encode_hex_byte(byte);
        }
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_has_its_own_key_and_a_mac_depends_on_all_that_came_before() {
        let [key, other] = ["first key", "other key"].map(|text| AuditKey::new(&SecretString::from(text)));
        let hash = key.hash("accessor");
        assert!(hash.len() == 76 && hash.starts_with("hmac-sha256:"), "{hash}");
        assert_ne!(hash, other.hash("accessor"));
        let zero = Mac::default();
        let first = key.sign(&zero, b"accessor");
        assert!(!hash.contains(&first.hex()));
        assert!(first != other.sign(&zero, b"accessor") && first != key.sign(&first, b"accessor"));
        assert_eq!(Mac::parse(first.hex().as_bytes()), Some(first));
        for wrong in ["", "00", &"G".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
            assert_eq!(Mac::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
