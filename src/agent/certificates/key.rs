//! Keys of certificates: their types and origins.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use keyward_machine::secret::{self, SecretFileError};
use keyward_machine::secret_string::SecretString;
use rcgen::{KeyPair, RsaKeySize};

use crate::secrets::PemBlock;

/// Origin of a certificate's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrigin {
    /// A new one for each certificate is made here.
    Generated(KeyType),
    /// That of a PEM file, which stays the same.
    File(PathBuf),
    /// The server makes a new one for each certificate, and sends it with the answer.
    Server,
}

/// Type of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA on the curve P-256.
    #[default]
    EcP256,
    /// ECDSA on the curve P-384.
    EcP384,
    /// Ed25519.
    Ed25519,
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
}

impl KeyType {
    /// All types, each with the word of the configuration.
    pub const ALL: [(&'static str, Self); 6] = [
        ("ec-p256", Self::EcP256),
        ("ec-p384", Self::EcP384),
        ("ed25519", Self::Ed25519),
        ("rsa-2048", Self::Rsa2048),
        ("rsa-3072", Self::Rsa3072),
        ("rsa-4096", Self::Rsa4096),
    ];

    /// Returns the word of the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Makes a key. RSA takes up to some seconds of CPU time.
    pub(super) fn generate(self) -> Result<KeyPair, rcgen::Error> {
        let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        match self {
            Self::EcP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::EcP384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
            Self::Rsa2048 => rsa(RsaKeySize::_2048),
            Self::Rsa3072 => rsa(RsaKeySize::_3072),
            Self::Rsa4096 => rsa(RsaKeySize::_4096),
        }
    }
}

/// Reason why there is no request to send.
#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    #[error("no key and no signing request can be made for these names")]
    Sign(#[from] rcgen::Error),
    #[error("OpenSSH has no keys of this type")]
    NoSshKey,
    #[error("cannot read the key in {}", path.display())]
    Read { path: PathBuf, source: SecretFileError },
    #[error("{} holds no PEM private key without a password that keyward can use", path.display())]
    NoKey { path: PathBuf },
    #[error("{} holds neither a private key without a password nor a public key of OpenSSH", path.display())]
    NoSshKeyFile { path: PathBuf },
    #[error("cannot read the password in {}", path.display())]
    ReadPassword { path: PathBuf, source: SecretFileError },
    #[error("the password in {} has a NUL byte", path.display())]
    Password { path: PathBuf },
}

impl KeyOrigin {
    /// Returns a word for it: the type of the key, `file` or `server`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Generated(key_type) => key_type.name(),
            Self::File(_) => "file",
            Self::Server => "server",
        }
    }
}

/// Reads the first private key of a file.
pub(super) fn read_key(path: &Path) -> Result<PemBlock, PrepareError> {
    let text = read_text(path)?;
    let key = PemBlock::parse_all(text.expose_secret()).into_iter().find(|block| block.label.ends_with("PRIVATE KEY"));
    key.ok_or_else(|| PrepareError::NoKey { path: path.to_owned() })
}

/// Reads a file of a key.
pub(super) fn read_text(path: &Path) -> Result<SecretString, PrepareError> {
    secret::read_text(path).map_err(|source| PrepareError::Read { path: path.to_owned(), source })
}

/// Reads the password of a file.
pub(super) fn read_password(path: &Path) -> Result<CString, PrepareError> {
    let read = secret::read_file(path);
    let password = read.map_err(|source| PrepareError::ReadPassword { path: path.to_owned(), source })?;
    CString::new(password.expose_secret()).map_err(|_| PrepareError::Password { path: path.to_owned() })
}
