//! Private keys as SEC 1 has them (`EC PRIVATE KEY`, RFC 5915), which is how Vault and OpenBao send them.

use rcgen::{KeyPair, PublicKeyData as _};

/// Encodes a key of the curve P-256; `None` for another.
pub(super) fn encode(key: &KeyPair) -> Option<Vec<u8>> {
    let pkcs8 = key.serialize_der();
    // In PKCS#8 the key follows its version, as an octet string.
    let at = pkcs8.windows(VERSION_AND_LENGTH.len()).position(|window| window == VERSION_AND_LENGTH)?;
    let scalar = pkcs8.get(at + VERSION_AND_LENGTH.len()..)?.get(..SCALAR_SIZE)?;
    let point = key.der_bytes();
    if point.len() != POINT_SIZE {
        return None;
    }
    Some([&SEQUENCE, &VERSION_AND_LENGTH[..], scalar, &CURVE, &PUBLIC_KEY, point].concat())
}

const SCALAR_SIZE: usize = 32;
const POINT_SIZE: usize = 65;
/// A sequence of 119 bytes: all that follows.
const SEQUENCE: [u8; 2] = [0x30, 0x77];
/// The integer 1, and the head of an octet string of 32 bytes.
const VERSION_AND_LENGTH: [u8; 5] = [0x02, 0x01, 0x01, 0x04, 0x20];
/// `[0]` with the object identifier of P-256.
const CURVE: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// `[1]` with the head of a bit string of 65 bytes.
const PUBLIC_KEY: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_sec1_is_the_key_in_pkcs8() {
        let key = KeyPair::generate().unwrap();
        let der = rustls::pki_types::PrivateSec1KeyDer::from(encode(&key).unwrap());
        let loaded = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&der.into()).unwrap();
        assert_eq!(loaded.public_key().unwrap().as_ref(), key.subject_public_key_info());
    }
}
