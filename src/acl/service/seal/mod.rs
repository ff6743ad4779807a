//! The server's keys: tokens are found by a keyed hash of their secret, and the secret itself is sealed.

// 0: one key
mod key;

// 1: several, and what the store says of them
mod keyring;

// 2: where they come from
mod file;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

pub use file::KeyError;
pub use key::{SealError, SealKey};
pub use keyring::{Keys, Ring};

use crate::acl::store::{Batch, Check, CommitError, Freshness, Key, Record, Revision, Store, Write};

/// The keys of the file, and which of them the store's records are under, as far as this server knows.
#[derive(Debug)]
pub struct Sealer {
    file: PathBuf,
    known: RwLock<Arc<Keys>>,
    /// Held by who moves tokens to another key.
    pub moving: tokio::sync::Mutex<Progress>,
}

/// How far a change of the key came at this server.
#[derive(Debug, Default)]
pub struct Progress {
    /// The record of the keys that it is made for.
    pub at: Revision,
    /// The last token that was looked at.
    pub after: Option<Key>,
    /// Tokens that cannot be moved.
    pub unreadable: Vec<Key>,
}

/// Where the store says which keys its records are under: their ids, the one that tokens are written with first.
pub fn record() -> Key {
    Key::of(&["seal", "key"])
}

/// Mark of a new store that names no key yet. It tells a first start that broke off from a store that was lost.
pub fn begun() -> Key {
    Key::of(&["seal", "begun"])
}

/// The write that puts [`begun`].
pub fn mark_begun() -> Write {
    Write::Put(begun(), b"{}".to_vec())
}

/// What has the store name these keys.
pub fn naming(keys: &Ring) -> Write {
    Write::Put(record(), keys.ids().into_bytes())
}

impl Sealer {
    /// Takes the keys in `path`, 64 hexadecimal digits a line. With a store that knows no key yet, a file that is not there
    /// is made, with mode 0600, and the store is told the first key.
    ///
    /// # Errors
    /// The file cannot be read or made, or lacks a key that the store's records are under.
    pub async fn open(path: &Path, store: &dyn Store) -> Result<Self, KeyError> {
        let mut told = store.get(&record(), Freshness::Linearizable).await?;
        if !path.try_exists().map_err(|source| KeyError::Make { path: path.to_owned(), source })? {
            if told.is_some() {
                return Err(KeyError::Lost { path: path.to_owned() });
            }
            // Before the key file: one without this mark and without a store's records is that of a lost store.
            store.commit(Batch { checks: Vec::new(), writes: vec![mark_begun()] }).await?;
            file::make(path)?;
        }
        let ring = file::read(path)?;
        loop {
            if let Some(told) = told {
                let keys = found(path, &ring, &told)?;
                let known = RwLock::new(Arc::new(keys));
                return Ok(Self { file: path.to_owned(), known, moving: tokio::sync::Mutex::default() });
            }
            let writes = vec![naming(&ring.alone()), Write::Delete(begun())];
            match store.commit(Batch { checks: vec![Check::Absent(record())], writes }).await {
                // Another server on the same store may have been faster.
                Ok(_) | Err(CommitError::Conflict(_)) => told = store.get(&record(), Freshness::Linearizable).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The keys as this server knows them.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in what the store says, and reads the file again where that names a key that was not there.
    ///
    /// # Errors
    /// The file lacks a key that the store's records are under, or cannot be read.
    pub async fn learn(&self, told: &Record) -> Result<Arc<Keys>, KeyError> {
        let known = self.keys();
        if known.at >= told.modified {
            return Ok(known);
        }
        match Keys::new(&known.file, &told.value, told.modified) {
            Ok(keys) => Ok(self.keep(keys)),
            Err(_) => Ok(self.keep(found(&self.file, &self.file(file::read).await?, told)?)),
        }
    }

    /// The same, with the file read again in any case, and with a new key put before the others if `generate`.
    ///
    /// # Errors
    /// As [`Sealer::learn`], or the file cannot be replaced.
    pub async fn reread(&self, told: &Record, generate: bool) -> Result<Arc<Keys>, KeyError> {
        let mut keys = found(&self.file, &self.file(file::read).await?, told)?;
        if generate {
            keys = found(&self.file, &self.file(file::prepend).await?, told)?;
        }
        Ok(self.keep(keys))
    }

    /// Does something with the file where it may block.
    async fn file(&self, work: fn(&Path) -> Result<Ring, KeyError>) -> Result<Ring, KeyError> {
        let path = self.file.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.unwrap_or_else(|error| Err(KeyError::Make { path: self.file.clone(), source: error.into() }))
    }

    fn keep(&self, keys: Keys) -> Arc<Keys> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.at <= keys.at {
            *known = Arc::new(keys);
        }
        Arc::clone(&known)
    }
}

fn found(path: &Path, ring: &Ring, told: &Record) -> Result<Keys, KeyError> {
    let other = |wanted| KeyError::Other { path: path.to_owned(), found: ring.ids(), wanted };
    Keys::new(ring, &told.value, told.modified).map_err(other)
}
