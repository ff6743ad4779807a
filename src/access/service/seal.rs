//! The server's key: tokens are found by a keyed hash of their secret, and the secret itself is sealed.

use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use crate::access::model::id::Id;
use crate::access::model::secret::{PlainSecret, SealedSecret, SecretHash};
use crate::access::store::{Batch, Check, CommitError, Freshness, Key, Store, StoreError, Write};
use crate::atomic_file::{self, Attributes, ReplaceError};
use crate::seal::Seal;
use crate::secret;
use crate::words;

/// Hashes and seals secrets with keys derived from the server's key.
pub struct Sealer {
    key_id: String,
    hash: hmac::Key,
    seal: Seal,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Sealer({})", self.key_id)
    }
}

impl Sealer {
    /// Takes the key in `path`, 64 hexadecimal digits. With a store that knows no key yet, a file that is not there is
    /// made, with mode 0600.
    ///
    /// # Errors
    /// The file cannot be read or made, or is not the key that the store was written with.
    pub async fn open(path: &Path, store: &dyn Store) -> Result<Self, KeyError> {
        let about = Key::of(&["seal", "key"]);
        let known = store
            .get(&about, Freshness::Linearizable)
            .await?
            .map(|record| String::from_utf8_lossy(&record.value).into_owned());
        if !path.try_exists().map_err(|source| KeyError::Make { path: path.to_owned(), source })? {
            if known.is_some() {
                return Err(KeyError::Lost { path: path.to_owned() });
            }
            make(path)?;
        }
        let sealer = Self::read(path)?;
        match known {
            Some(known) if known == sealer.key_id => {}
            Some(known) => {
                return Err(KeyError::Other { path: path.to_owned(), found: sealer.key_id, wanted: known });
            }
            None => {
                let writes = vec![Write::Put(about.clone(), sealer.key_id.clone().into_bytes())];
                store.commit(Batch { checks: vec![Check::Absent(about)], writes }).await?;
            }
        }
        Ok(sealer)
    }

    fn read(path: &Path) -> Result<Self, KeyError> {
        let line = secret::read_file(path).map_err(KeyError::Read)?;
        let key = hex(line.expose_secret()).ok_or_else(|| KeyError::Form { path: path.to_owned() })?;
        Self::with_key(&key).ok_or_else(|| KeyError::Form { path: path.to_owned() })
    }

    fn with_key(key: &[u8; 32]) -> Option<Self> {
        let master = hmac::Key::new(hmac::HMAC_SHA256, key);
        let derive = |purpose: &[u8]| hmac::sign(&master, purpose);
        let key_id = STANDARD.encode(&derive(b"keyward access: key id").as_ref()[..6]);
        let seal = Seal::new(derive(b"keyward access: seal").as_ref().try_into().ok()?).ok()?;
        let hash = hmac::Key::new(hmac::HMAC_SHA256, derive(b"keyward access: hash").as_ref());
        Some(Self { key_id, hash, seal })
    }

    /// Ids of the keys that records of the store may be sealed with.
    pub fn key_ids(&self) -> Vec<String> {
        vec![self.key_id.clone()]
    }

    /// Whether it can open what the key with that id sealed.
    pub fn knows(&self, key_id: &str) -> bool {
        self.key_id == key_id
    }

    /// The hash by which a token is found.
    pub fn hash(&self, secret: &PlainSecret) -> SecretHash {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hmac::sign(&self.hash, secret.reveal().as_bytes()).as_ref());
        SecretHash::new(bytes)
    }

    /// The hashes that a token with that secret may be found by: one for each key that is known.
    pub fn hashes(&self, secret: &PlainSecret) -> [SecretHash; 1] {
        [self.hash(secret)]
    }

    /// Seals the secret of the token with that accessor; it opens for no other.
    ///
    /// # Errors
    /// The crypto library refused.
    pub fn seal(&self, accessor: Id, secret: &PlainSecret) -> Result<SealedSecret, SealError> {
        let sealed = self.seal.close(secret.reveal().as_bytes(), accessor.to_string().as_bytes());
        let sealed = STANDARD.encode(sealed.map_err(|_| SealError)?);
        Ok(SealedSecret { key_id: self.key_id.clone(), sealed })
    }

    /// Opens a sealed secret.
    ///
    /// # Errors
    /// It was sealed with another key or for another token, or is damaged.
    pub fn unseal(&self, accessor: Id, sealed: &SealedSecret) -> Result<PlainSecret, SealError> {
        let sealed = STANDARD.decode(&sealed.sealed).map_err(|_| SealError)?;
        let plain = self.seal.open(&sealed, accessor.to_string().as_bytes()).map_err(|_| SealError)?;
        Ok(PlainSecret::presented(std::str::from_utf8(&plain).map_err(|_| SealError)?))
    }
}

fn make(path: &Path) -> Result<(), KeyError> {
    let fail = |source| KeyError::Make { path: path.to_owned(), source };
    let mut key = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(&mut *key).map_err(|_| fail(std::io::Error::other("no random numbers")))?;
    let text = Zeroizing::new(words::hex(&*key) + "\n");
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

/// Why the server's key could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(secret::SecretFileError),
    /// The file holds something else.
    #[error("{} does not hold a key: 64 hexadecimal digits", path.display())]
    Form {
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
        /// Id of the key in the file.
        found: String,
        /// Id of the store's key.
        wanted: String,
    },
    /// The store failed.
    #[error("cannot remember the key in the store")]
    Commit(#[from] CommitError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A secret cannot be sealed, or was sealed with another key, or is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token's secret cannot be sealed or opened with the server's key")]
pub struct SealError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_with_its_key_for_its_token_alone() {
        let [sealer, other] = [[1; 32], [2; 32]].map(|key| Sealer::with_key(&key).unwrap());
        let (accessor, secret) = (Id::random(), PlainSecret::random());
        let sealed = sealer.seal(accessor, &secret).unwrap();
        assert_eq!(sealer.unseal(accessor, &sealed).unwrap().reveal(), secret.reveal());
        assert_ne!(sealer.seal(accessor, &secret).unwrap(), sealed);
        assert_eq!(sealer.unseal(Id::random(), &sealed).unwrap_err(), SealError);
        assert_eq!(other.unseal(accessor, &sealed).unwrap_err(), SealError);
        for damaged in ["", "AAAA", "!", &sealed.sealed.replacen(char::is_alphabetic, "+", 1)] {
            let damaged = SealedSecret { sealed: damaged.to_owned(), ..sealed.clone() };
            assert_eq!(sealer.unseal(accessor, &damaged).unwrap_err(), SealError);
        }
        assert_eq!(sealer.hash(&secret), sealer.hash(&secret));
        assert_ne!(sealer.hash(&secret), other.hash(&secret));
        assert_ne!(sealer.key_id, other.key_id);
    }

    #[test]
    fn a_key_is_64_digits() {
        assert_eq!(hex(&"0aF".repeat(22)[..64]).map(|key| key[..3].to_vec()), Some(vec![0x0a, 0xf0, 0xaf]));
        for text in ["", "ab", &"a".repeat(63), &"a".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert!(hex(text).is_none(), "{text}");
        }
    }
}
