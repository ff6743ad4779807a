//! Encryption of a token file for one reader, in the format of Vault Agent: AES-256-GCM with a key that an ephemeral X25519 key
//! and the reader's agree on, in JSON beside our public key and the nonce.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use aws_lc_rs::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::digest::{Digest, SHA256, digest};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand::SystemRandom;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_machine::secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::SinkEncryption;

/// Encrypts the content of one sink.
#[derive(Debug)]
pub(super) struct Envelope {
    options: SinkEncryption,
    /// The reader's key, read once: a key that changes later could be an attacker's.
    reader: Option<PublicKey>,
    /// Hash of the last content, and its envelope: the same content is not encrypted again.
    last: Option<(Digest, Vec<u8>)>,
}

/// An X25519 public key.
type PublicKey = [u8; 32];

impl Envelope {
    pub(super) const fn new(options: SinkEncryption) -> Self {
        Self { options, reader: None, last: None }
    }

    /// Encrypts `plain`. Reads the reader's key the first time.
    pub(super) async fn seal(&mut self, plain: Vec<u8>) -> Result<Vec<u8>, EnvelopeError> {
        let reader = if let Some(reader) = self.reader {
            reader
        } else {
            let path = self.options.public_key_file.clone();
            let read = tokio::task::spawn_blocking(move || read_key(&path)).await;
            let reader = read.map_err(|_| EnvelopeError::Crypto)??;
            tracing::info!(
                event = "sink.reader",
                path = self.options.public_key_file.display().to_string(),
                public_key = STANDARD.encode(reader),
                "the sink is encrypted for this key"
            );
            *self.reader.insert(reader)
        };
        // Each encryption differs, so without this the file would change at every retry.
        let hash = digest(&SHA256, &plain);
        if let Some((last, bytes)) = &self.last
            && last.as_ref() == hash.as_ref()
        {
            return Ok(bytes.clone());
        }
        let bytes = encrypt(plain, &reader, &self.options).map_err(|Unspecified| EnvelopeError::Crypto)?;
        self.last = Some((hash, bytes.clone()));
        Ok(bytes)
    }
}

fn read_key(path: &Path) -> Result<PublicKey, EnvelopeError> {
    let text = secret::read_text(path).map_err(|error| {
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        EnvelopeError::Unreadable { path: path.to_owned(), cause }
    })?;
    parse_public_key(text.expose_secret()).ok_or_else(|| EnvelopeError::NoKey { path: path.to_owned() })
}

/// Parses a reader's key file. Other fields are ignored.
fn parse_public_key(text: &str) -> Option<PublicKey> {
    #[derive(Deserialize)]
    struct KeyFile {
        curve25519_public_key: String,
    }
    let file: KeyFile = serde_json::from_str(text).ok()?;
    STANDARD.decode(file.curve25519_public_key.trim()).ok()?.try_into().ok()
}

/// The envelope of Vault's `sdk/helper/dhutil`: AES-256-GCM with a nonce of 12 bytes and the tag at the end; a derived key is
/// HKDF-SHA-256 with the two public keys as salt and info, the smaller one first.
#[derive(Serialize)]
struct EnvelopeJson {
    curve25519_public_key: String,
    nonce: String,
    encrypted_payload: String,
}

/// Encrypts bytes with an ephemeral key pair: whoever reads this process's memory later cannot decrypt earlier envelopes.
fn encrypt(mut bytes: Vec<u8>, reader: &PublicKey, options: &SinkEncryption) -> Result<Vec<u8>, Unspecified> {
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())?;
    let public_key = private.compute_public_key()?;
    // Refuses keys of small order, with which every shared secret would be zero (RFC 7748, section 6.1).
    let nonce = agree_ephemeral(private, UnparsedPublicKey::new(&X25519, reader), Unspecified, |shared_secret| {
        let mut key = Zeroizing::new([0; 32]);
        if options.derive_key {
            let (first, second) = if public_key.as_ref() < reader.as_slice() {
                (public_key.as_ref(), reader.as_slice())
            } else {
                (reader.as_slice(), public_key.as_ref())
            };
            Salt::new(HKDF_SHA256, first).extract(shared_secret).expand(&[second], HKDF_SHA256)?.fill(&mut *key)?;
        } else {
            key.copy_from_slice(shared_secret.get(..32).ok_or(Unspecified)?);
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM, &*key)?;
        key.seal_in_place_append_tag(Aad::from(options.aad.as_bytes()), &mut bytes)
    })?;
    let sealed = EnvelopeJson {
        curve25519_public_key: STANDARD.encode(public_key),
        nonce: STANDARD.encode(nonce.as_ref()),
        encrypted_payload: STANDARD.encode(&bytes),
    };
    serde_json::to_vec(&sealed).map_err(|_| Unspecified)
}

/// Reason why a sink could not be encrypted.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvelopeError {
    /// The reader's key file is missing or unreadable.
    #[error("cannot read the reader's public key in {}: {cause}; the reader must write it first", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// The file holds no key.
    #[error("{} holds no public key; write {{\"curve25519_public_key\": \"...\"}} with the 32 bytes of an X25519 key in base64", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The crypto library refused the key or the encryption.
    #[error(
        "the crypto library refused to encrypt: the reader's public key is of small order, or this is a bug in keyward"
    )]
    Crypto,
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::Nonce;
    use aws_lc_rs::agreement::{PrivateKey, agree};
    use serde_json::Value;

    use super::*;

    /// Decrypts as the reader does.
    fn open(envelope: &[u8], private: &[u8; 32], derive_key: bool, aad: &str) -> Option<Vec<u8>> {
        let envelope: Value = serde_json::from_slice(envelope).unwrap();
        let field = |name: &str| STANDARD.decode(envelope[name].as_str().unwrap()).unwrap();
        let theirs = field("curve25519_public_key");
        let mut payload = field("encrypted_payload");
        let private = PrivateKey::from_private_key(&X25519, private).unwrap();
        let ours = private.compute_public_key().unwrap();
        let agreed =
            agree(&private, UnparsedPublicKey::new(&X25519, &theirs), (), |agreed| Ok(agreed.to_vec())).unwrap();
        let mut key = [0; 32];
        if derive_key {
            let mut keys = [ours.as_ref(), &theirs];
            keys.sort_unstable();
            let derived = Salt::new(HKDF_SHA256, keys[0]).extract(&agreed);
            derived.expand(&[keys[1]], HKDF_SHA256).unwrap().fill(&mut key).unwrap();
        } else {
            key.copy_from_slice(&agreed);
        }
        let nonce = Nonce::try_assume_unique_for_key(&field("nonce")).unwrap();
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key).unwrap();
        Some(key.open_in_place(nonce, Aad::from(aad), &mut payload).ok()?.to_vec())
    }

    const PRIVATE: [u8; 32] = [7; 32];

    fn reader() -> PublicKey {
        let private = PrivateKey::from_private_key(&X25519, &PRIVATE).unwrap();
        private.compute_public_key().unwrap().as_ref().try_into().unwrap()
    }

    fn options(derive_key: bool, aad: &str) -> SinkEncryption {
        SinkEncryption { public_key_file: PathBuf::from("/key.json"), derive_key, aad: aad.to_owned() }
    }

    #[test]
    fn only_the_reader_decrypts_with_the_same_derivation_and_additional_data() {
        for (derive_key, aad) in [(true, "web"), (true, ""), (false, "web"), (false, "")] {
            let plain = b"hvs.canary".to_vec();
            let sealed = encrypt(plain, &reader(), &options(derive_key, aad)).unwrap();
            assert!(!sealed.windows(6).any(|part| part == b"canary"));
            assert_eq!(open(&sealed, &PRIVATE, derive_key, aad).unwrap(), b"hvs.canary");
            assert_eq!(open(&sealed, &PRIVATE, !derive_key, aad), None);
            assert_eq!(open(&sealed, &PRIVATE, derive_key, "other"), None);
            assert_eq!(open(&sealed, &[8; 32], derive_key, aad), None);
        }
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        assert!(encrypt(b"hvs.canary".to_vec(), &[0; 32], &options(true, "")).is_err());
    }

    #[test]
    fn a_key_file_holds_a_key_of_32_bytes() {
        let check = |text: &str, expected: bool| assert_eq!(parse_public_key(text).is_some(), expected, "{text}");
        let key = STANDARD.encode(reader());
        check(&format!(r#"{{"curve25519_public_key":"{key}"}}"#), true);
        check(&format!("{{\n  \"curve25519_public_key\": \"{key}\",\n  \"made_by\": \"web\"\n}}\n"), true);
        check(&format!(r#"{{"curve25519_public_key":"{}"}}"#, STANDARD.encode([7; 31])), false);
        check(r#"{"curve25519_public_key":""}"#, false);
        check(r#"{"curve25519_public_key":null}"#, false);
        check(&format!(r#"{{"public_key":"{key}"}}"#), false);
        check(&key, false);
        check("", false);
    }
}
