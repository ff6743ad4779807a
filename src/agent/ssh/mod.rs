//! Keys and certificates of OpenSSH: their fields, checks of signatures, and the format of private keys.
//!
//! Formats: RFC 4251 and RFC 4253; `PROTOCOL.key` and `PROTOCOL.certkeys` of OpenSSH.

mod wire;
mod public_key;
mod private_key;
mod certificate;

pub use self::certificate::SshCertificateKind;
pub(crate) use self::certificate::{SshCertificate, YEAR_9999};
pub(crate) use self::private_key::{PRIVATE_KEY_LABEL, PrivateKeyFile, encode_private_key};
pub(crate) use self::public_key::SshPublicKey;
