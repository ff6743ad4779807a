//! Key file: one key per line, 64 hexadecimal digits each. Functions block.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keyward_machine::atomic_file::{self, Attributes, ReplaceError};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::hex;
use zeroize::Zeroizing;

use super::key::SealKey;
use super::keyring::Keyring;
use crate::store::{CommitError, StoreError};

/// Most keys in a file: each is tried for each token during a rotation.
const MAX_KEYS: usize = 8;

/// Reads the key file.
pub(super) fn read(path: &Path) -> Result<Keyring, SealKeyError> {
    parse_keyring(path, &secret::read_lines(path).map_err(SealKeyError::Read)?)
}

/// Creates a key file with one new key.
pub(super) fn create(path: &Path) -> Result<(), SealKeyError> {
    write(path, &new_line(path)?)
}

/// Inserts a new key before the existing ones.
pub(super) fn prepend(path: &Path) -> Result<Keyring, SealKeyError> {
    let mut lines = secret::read_lines(path).map_err(SealKeyError::Read)?;
    // A malformed file is rejected, not rewritten.
    parse_keyring(path, &lines)?;
    lines.insert(0, SecretString::from(new_line(path)?.trim()));
    let keyring = parse_keyring(path, &lines)?;
    let mut text = String::new();
    for line in &lines {
        text.push_str(line.expose_secret());
        text.push('\n');
    }
    write(path, &text)?;
    Ok(keyring)
}

fn parse_keyring(path: &Path, lines: &[SecretString]) -> Result<Keyring, SealKeyError> {
    if lines.len() > MAX_KEYS {
        return Err(SealKeyError::TooManyKeys { path: path.to_owned() });
    }
    let keys = lines.iter().map(|line| SealKey::derive(&*parse_key(line.expose_secret())?).map(Arc::new));
    let keys: Option<Vec<_>> = keys.collect();
    keys.and_then(Keyring::new).ok_or_else(|| SealKeyError::Malformed { path: path.to_owned() })
}

fn new_line(path: &Path) -> Result<String, SealKeyError> {
    let mut key = Zeroizing::new([0; 32]);
    let fail = |_| SealKeyError::Create { path: path.to_owned(), source: std::io::Error::other("no random numbers") };
    aws_lc_rs::rand::fill(&mut *key).map_err(fail)?;
    Ok(hex::encode_hex(&*key) + "\n")
}

fn write(path: &Path, text: &str) -> Result<(), SealKeyError> {
    atomic_file::replace(path, text.as_bytes(), &Attributes { mode: 0o600, owner: None, group: None })?;
    Ok(())
}

fn parse_key(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    hex::decode_hex(text.as_bytes(), &mut *key).then_some(key)
}

impl SealKeyError {
    /// Returns the code for operators.
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            Self::Missing { .. } | Self::Mismatch { .. } => ErrorCode::SealKeyMissing,
            Self::Read(_)
            | Self::Malformed { .. }
            | Self::TooManyKeys { .. }
            | Self::Create { .. }
            | Self::Write(_) => ErrorCode::SealKeyInvalid,
            Self::Commit(_) => ErrorCode::StoreFailed,
            Self::Store(error) => error.code(),
        }
    }
}

/// Error of loading the sealing keys.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(secret::SecretFileError),
    /// The file is malformed.
    #[error("{} is not a key file: expected 64 hexadecimal digits per line", path.display())]
    Malformed {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The file holds too many keys.
    #[error("{} would hold more than {MAX_KEYS} keys: remove those that the store no longer needs", path.display())]
    TooManyKeys {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The file cannot be created.
    #[error("cannot create the key file {}", path.display())]
    Create {
        /// Path of the key file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] ReplaceError),
    /// The store names a key, but the key file does not exist.
    #[error("the key file {} is missing: restore it, the tokens in the store cannot be decrypted without it", path.display())]
    Missing {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The store names a key that the file lacks.
    #[error("{} holds the key {found}, but the store requires {expected}", path.display())]
    Mismatch {
        /// Path of the key file.
        path: PathBuf,
        /// Ids of the keys in the file.
        found: String,
        /// Id of the key that the store requires.
        expected: String,
    },
    /// The store failed.
    #[error("cannot write the key id to the store")]
    Commit(#[from] CommitError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_64_digits() {
        assert_eq!(parse_key(&"0aF".repeat(22)[..64]).map(|key| key[..3].to_vec()), Some(vec![0x0a, 0xf0, 0xaf]));
        for text in ["", "ab", &"a".repeat(63), &"a".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert!(parse_key(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_new_key_comes_before_the_others_and_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        create(&path).unwrap();
        let first = read(&path).unwrap().ids();
        let mut expected = first.clone();
        for _ in 1..MAX_KEYS {
            let keyring = prepend(&path).unwrap();
            expected = format!("{} {expected}", keyring.first.id());
            assert_eq!((keyring.ids(), read(&path).unwrap().ids()), (expected.clone(), expected.clone()));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let full = std::fs::read(&path).unwrap();
        assert!(matches!(prepend(&path), Err(SealKeyError::TooManyKeys { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), full);

        std::fs::write(&path, "not a key\n").unwrap();
        assert!(matches!(prepend(&path), Err(SealKeyError::Malformed { .. })));
        // A mounted Kubernetes secret is a symlink, which must not be replaced.
        create(&folder.path().join("elsewhere")).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(read(&path).is_ok());
        assert!(matches!(prepend(&path), Err(SealKeyError::Write(_))));
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }
}
