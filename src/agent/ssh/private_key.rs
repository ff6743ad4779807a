//! Private keys in OpenSSH's own format (`PROTOCOL.key`), without a password.

use aws_lc_rs::rand;
use keyward_http::tls::der::{Der, INTEGER, OCTET_STRING, SEQUENCE};
use rcgen::KeyPair;

use super::public_key::SshPublicKey;
use super::wire::{Fields, put_number, put_text};

/// Label of the PEM block.
pub(crate) const PRIVATE_KEY_LABEL: &str = "OPENSSH PRIVATE KEY";

const MAGIC: &[u8] = b"openssh-key-v1\0";

/// The part of a private key's file that needs no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrivateKeyFile {
    pub(crate) public: SshPublicKey,
    pub(crate) is_encrypted: bool,
}

impl PrivateKeyFile {
    /// Reads the content of the PEM block.
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = Fields(content.strip_prefix(MAGIC)?);
        let cipher = fields.text()?;
        let _derivation = (fields.text()?, fields.text()?);
        let keys = fields.uint32()?;
        let public = SshPublicKey::from_blob(fields.text()?)?;
        (keys == 1).then_some(Self { public, is_encrypted: cipher != b"none" })
    }
}

/// Encodes a key pair as the content of the PEM block; `None` if OpenSSH has no such type, or the system gives no random numbers.
pub(crate) fn encode_private_key(pair: &KeyPair) -> Option<Vec<u8>> {
    let public = SshPublicKey::from_pair(pair)?;
    let mut check = [0; 4];
    rand::fill(&mut check).ok()?;
    let mut private = [check, check].concat();
    put_private_fields(&mut private, &public, pair.serialized_der())?;
    // An empty comment.
    put_text(&mut private, b"");
    let padding = private.len().next_multiple_of(BLOCK) - private.len();
    private.extend((1_u8..).take(padding));
    let mut blob = MAGIC.to_vec();
    for field in [&b"none"[..], b"none", b""] {
        put_text(&mut blob, field);
    }
    blob.extend(1_u32.to_be_bytes());
    put_text(&mut blob, public.blob());
    put_text(&mut blob, &private);
    Some(blob)
}

/// Size of a block of the cipher `none`.
const BLOCK: usize = 8;

/// Appends the type of the key and its fields from the DER of a pair (PKCS#8, or PKCS#1 for RSA).
fn put_private_fields(private: &mut Vec<u8>, public: &SshPublicKey, der: &[u8]) -> Option<()> {
    let mut outer = Der(Der(der).element(SEQUENCE)?);
    outer.element(INTEGER)?;
    let inner = outer.element(SEQUENCE).and_then(|_algorithm| outer.element(OCTET_STRING));
    match public.kind() {
        "ssh-ed25519" => {
            let seed = Der(inner?).element(OCTET_STRING)?;
            let mut key = Fields(public.blob());
            let (_kind, point) = (key.text()?, key.text()?);
            private.extend(public.blob());
            put_text(private, &[seed, point].concat());
        }
        "ssh-rsa" => {
            let mut key = Der(Der(inner.unwrap_or(der)).element(SEQUENCE)?);
            let _version = key.element(INTEGER)?;
            let mut numbers = [&[][..]; 8];
            for number in &mut numbers {
                *number = key.element(INTEGER)?;
            }
            let [modulus, exponent, private_exponent, first, second, _, _, coefficient] = numbers;
            put_text(private, b"ssh-rsa");
            for number in [modulus, exponent, private_exponent, coefficient, first, second] {
                put_number(private, number);
            }
        }
        _ => {
            // ECPrivateKey (RFC 5915).
            let mut key = Der(Der(inner.unwrap_or(der)).element(SEQUENCE)?);
            key.element(INTEGER)?;
            private.extend(public.blob());
            put_number(private, key.element(OCTET_STRING)?);
        }
    }
    Some(())
}
