//! The key file: a key a line, 64 hexadecimal digits each. Blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::key::SealKey;
use super::keyring::Ring;
use crate::acl::store::{CommitError, StoreError};
use crate::atomic_file::{self, Attributes, ReplaceError};
use crate::hex;
use crate::secret;

/// Most keys of a file: each is tried for each token while keys are changed.
const MAX_KEYS: usize = 8;

/// Reads the keys.
///
/// # Errors
/// The file cannot be read, or does not hold keys.
pub(super) fn read(path: &Path) -> Result<Ring, KeyError> {
    ring(path, &secret::read_lines(path).map_err(KeyError::Read)?)
}

/// Makes a file of one new key.
///
/// # Errors
/// It cannot be made.
pub(super) fn make(path: &Path) -> Result<(), KeyError> {
    write(path, &new_line(path)?)
}

/// Puts a new key before those in the file.
///
/// # Errors
/// The file cannot be read, does not hold keys or holds as many as it may, or cannot be replaced.
pub(super) fn prepend(path: &Path) -> Result<Ring, KeyError> {
    let mut lines = secret::read_lines(path).map_err(KeyError::Read)?;
    ring(path, &lines)?;
    lines.insert(0, SecretString::from(new_line(path)?.trim()));
    let ring = ring(path, &lines)?;
    let length = lines.iter().map(|line| line.expose_secret().len() + 1).sum();
    let mut text = Zeroizing::new(String::with_capacity(length));
    for line in &lines {
        text.push_str(line.expose_secret());
        text.push('\n');
    }
    write(path, &text)?;
    Ok(ring)
}

fn ring(path: &Path, lines: &[SecretString]) -> Result<Ring, KeyError> {
    if lines.len() > MAX_KEYS {
        return Err(KeyError::Many { path: path.to_owned() });
    }
    let keys = lines.iter().map(|line| SealKey::derived(&*hex(line.expose_secret())?).map(Arc::new));
    let keys: Option<Vec<_>> = keys.collect();
    keys.and_then(Ring::of).ok_or_else(|| KeyError::Form { path: path.to_owned() })
}

fn new_line(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let mut key = Zeroizing::new([0; 32]);
    let fail = |_| KeyError::Make { path: path.to_owned(), source: std::io::Error::other("no random numbers") };
    aws_lc_rs::rand::fill(&mut *key).map_err(fail)?;
    Ok(Zeroizing::new(hex::encode_hex(&*key) + "\n"))
}

fn write(path: &Path, text: &str) -> Result<(), KeyError> {
    atomic_file::replace(path, text.as_bytes(), &Attributes { mode: 0o600, owner: None, group: None })?;
    Ok(())
}

fn hex(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(key)
}

/// Why the server's keys could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(secret::SecretFileError),
    /// The file holds something else.
    #[error("{} does not hold keys: 64 hexadecimal digits a line", path.display())]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// The file holds too many keys.
    #[error("{} holds more than {MAX_KEYS} keys, or would: take out those that the store no longer needs", path.display())]
    Many {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made.
    #[error("cannot make the key file {}", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] ReplaceError),
    /// The store was written with a key, and its file is gone.
    #[error("the key file {} is gone: bring it back, the tokens in the store cannot be read without it", path.display())]
    Lost {
        /// The file.
        path: PathBuf,
    },
    /// The store was written with another key.
    #[error("{} holds the key {found}, and the store was written with {wanted}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Ids of the keys in the file.
        found: String,
        /// Id of a key of the store.
        wanted: String,
    },
    /// The store failed.
    #[error("cannot remember the key in the store")]
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
        assert_eq!(hex(&"0aF".repeat(22)[..64]).map(|key| key[..3].to_vec()), Some(vec![0x0a, 0xf0, 0xaf]));
        for text in ["", "ab", &"a".repeat(63), &"a".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert!(hex(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_new_key_comes_before_the_others_and_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        make(&path).unwrap();
        let first = read(&path).unwrap().ids();
        let mut wanted = first.clone();
        for _ in 1..MAX_KEYS {
            let ring = prepend(&path).unwrap();
            wanted = format!("{} {wanted}", ring.first.id());
            assert_eq!((ring.ids(), read(&path).unwrap().ids()), (wanted.clone(), wanted.clone()));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let full = std::fs::read(&path).unwrap();
        assert!(matches!(prepend(&path), Err(KeyError::Many { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), full);

        std::fs::write(&path, "not a key\n").unwrap();
        assert!(matches!(prepend(&path), Err(KeyError::Form { .. })));
        // A mounted secret is a link: what it leads to comes from elsewhere.
        make(&folder.path().join("elsewhere")).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(read(&path).is_ok());
        assert!(matches!(prepend(&path), Err(KeyError::Write(_))));
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }
}
