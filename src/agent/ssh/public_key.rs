//! Public keys, and what they have signed.

use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_http::tls::der::{Der, INTEGER, SEQUENCE};
use rcgen::KeyPair;

use super::wire::{Fields, put_number, put_text, without_zeros};

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshPublicKey {
    kind: String,
    blob: Vec<u8>,
}

impl SshPublicKey {
    /// Parses a line `TYPE BASE64 [COMMENT]`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (kind, base64) = (words.next()?, words.next()?);
        Self::from_blob(&STANDARD.decode(base64).ok()?).filter(|key| key.kind == kind)
    }

    /// Reads the binary form; `None` for another one, and for a type of key that OpenSSH does not have.
    pub(crate) fn from_blob(blob: &[u8]) -> Option<Self> {
        let mut fields = Fields(blob);
        let kind = fields.utf8()?;
        for _ in 0..number_of_fields(kind)? {
            fields.text()?;
        }
        fields.is_empty().then(|| Self { kind: kind.to_owned(), blob: blob.to_vec() })
    }

    /// Returns the public key of a pair; `None` if OpenSSH has no such type.
    pub(crate) fn from_pair(pair: &KeyPair) -> Option<Self> {
        let (raw, algorithm) = (pair.public_key_raw(), pair.algorithm());
        let curve = |name: &str| (format!("ecdsa-sha2-{name}"), vec![name.as_bytes().to_vec(), raw.to_vec()]);
        let (kind, fields) = if *algorithm == rcgen::PKCS_ED25519 {
            ("ssh-ed25519".to_owned(), vec![raw.to_vec()])
        } else if *algorithm == rcgen::PKCS_ECDSA_P256_SHA256 {
            curve("nistp256")
        } else if *algorithm == rcgen::PKCS_ECDSA_P384_SHA384 {
            curve("nistp384")
        } else {
            // RSAPublicKey (RFC 8017, A.1.1).
            let mut key = Der(Der(raw).element(SEQUENCE)?);
            let (modulus, exponent) = (key.element(INTEGER)?, key.element(INTEGER)?);
            let mut blob = Vec::new();
            put_text(&mut blob, b"ssh-rsa");
            put_number(&mut blob, exponent);
            put_number(&mut blob, modulus);
            return Self::from_blob(&blob);
        };
        let mut blob = Vec::new();
        put_text(&mut blob, kind.as_bytes());
        for field in &fields {
            put_text(&mut blob, field);
        }
        Some(Self { kind, blob })
    }

    pub(crate) fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Returns the type, such as `ssh-ed25519`.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Formats the line of a file, without a line break.
    pub(crate) fn to_line(&self) -> String {
        format!("{} {}", self.kind, STANDARD.encode(&self.blob))
    }

    /// Returns true if this key has signed a message. A signature with SHA-1 (`ssh-rsa`), which OpenSSH refuses, does not count.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.verify(message, signature).is_some()
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> Option<()> {
        let mut signature = Fields(signature);
        let (algorithm, signature) = (signature.utf8()?, signature.text()?);
        let mut key = Fields(&self.blob);
        key.text()?;
        match self.kind.as_str() {
            "ssh-ed25519" if algorithm == self.kind => check(&signature::ED25519, key.text()?, message, signature),
            "ssh-rsa" => {
                let hash = match algorithm {
                    "rsa-sha2-256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "rsa-sha2-512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    _ => return None,
                };
                let (exponent, modulus) = (without_zeros(key.text()?), without_zeros(key.text()?));
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(hash, message, signature).ok()
            }
            kind if algorithm == kind => {
                let (curve, point) = (key.text()?, key.text()?);
                let (algorithm, size): (&dyn VerificationAlgorithm, usize) = match curve {
                    b"nistp256" => (&signature::ECDSA_P256_SHA256_FIXED, 32),
                    b"nistp384" => (&signature::ECDSA_P384_SHA384_FIXED, 48),
                    b"nistp521" => (&signature::ECDSA_P521_SHA512_FIXED, 66),
                    _ => return None,
                };
                let mut numbers = Fields(signature);
                let fixed = [numbers.text()?, numbers.text()?].map(|number| pad(without_zeros(number), size));
                let [Some(first), Some(second)] = fixed else { return None };
                check(algorithm, point, message, &[first, second].concat())
            }
            _ => None,
        }
    }
}

fn check(algorithm: &'static dyn VerificationAlgorithm, key: &[u8], message: &[u8], signature: &[u8]) -> Option<()> {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).ok()
}

/// Puts zeros in front of a number; `None` for a longer one.
fn pad(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let zeros = size.checked_sub(number.len())?;
    Some([&vec![0; zeros], number].concat())
}

/// Number of the fields of a key after its type.
pub(super) fn number_of_fields(kind: &str) -> Option<usize> {
    Some(match kind {
        "ssh-ed25519" => 1,
        "ssh-rsa"
        | "ecdsa-sha2-nistp256"
        | "ecdsa-sha2-nistp384"
        | "ecdsa-sha2-nistp521"
        | "sk-ssh-ed25519"
        | "sk-ssh-ed25519@openssh.com" => 2,
        "sk-ecdsa-sha2-nistp256" | "sk-ecdsa-sha2-nistp256@openssh.com" => 3,
        "ssh-dss" => 4,
        _ => return None,
    })
}
