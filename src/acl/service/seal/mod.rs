//! Sealing keys: tokens are found by a keyed hash of their secret, and the secret is stored encrypted.

// 0: one key
mod key;

// 1: several keys, and the key record
mod keyring;

// 2: the key file
mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

pub(crate) use file::SealKeyError;
pub(crate) use key::{SealError, SealKey};
pub(crate) use keyring::{Keyring, SealKeys};

use crate::acl::store::{Batch, Check, CommitError, Freshness, Key, Record, Revision, Store, Write};
use crate::atomic_file::sweep_and_log;

/// Keys of the key file, and the ones that the store names, as last read.
#[derive(Debug)]
pub(crate) struct Sealer {
    file: PathBuf,
    keys: RwLock<Arc<SealKeys>>,
    /// Locked during a rekey call; holds its progress.
    pub rekey_progress: tokio::sync::Mutex<RekeyProgress>,
}

/// Progress of a rotation on this server.
#[derive(Debug, Default)]
pub(crate) struct RekeyProgress {
    /// Revision of the key record that it belongs to.
    pub at: Revision,
    /// Key of the last processed token.
    pub after: Option<Key>,
    /// Tokens that cannot be re-encrypted.
    pub unreadable: Vec<Key>,
}

/// Store key of the key record: ids of the active keys, the current one first.
pub(crate) fn key_record() -> Key {
    Key::new(&["seal", "key"])
}

/// Store key of the marker of a new store without key record. It distinguishes an interrupted first start from a lost
/// store.
pub(crate) fn init_marker() -> Key {
    Key::new(&["seal", "begun"])
}

/// Returns the write that sets [`init_marker`].
pub(crate) fn put_init_marker() -> Write {
    Write::Put(init_marker(), b"{}".to_vec())
}

/// Returns the write that sets the key record.
pub(crate) fn put_key_record(keys: &Keyring) -> Write {
    Write::Put(key_record(), keys.ids().into_bytes())
}

impl Sealer {
    /// Reads the keys in `path`, 64 hexadecimal digits a line. If the store has no key record yet, a missing file is
    /// created with mode 0600 and the key record names its first key.
    ///
    /// # Errors
    /// The file cannot be read or created, or lacks a key that the store names.
    pub(crate) async fn open(path: &Path, store: &dyn Store) -> Result<Self, SealKeyError> {
        sweep_and_log(path);
        let mut record = store.get(&key_record(), Freshness::Linearizable).await?;
        if !path.try_exists().map_err(|source| SealKeyError::Create { path: path.to_owned(), source })? {
            if record.is_some() {
                return Err(SealKeyError::Missing { path: path.to_owned() });
            }
            // Before the key file: a key file without this marker and without store records belongs to a lost store.
            store.commit(Batch { checks: Vec::new(), writes: vec![put_init_marker()] }).await?;
            file::create(path)?;
        }
        let keyring = file::read(path)?;
        loop {
            if let Some(record) = record {
                let keys = active_keys(path, &keyring, &record)?;
                let keys = RwLock::new(Arc::new(keys));
                return Ok(Self { file: path.to_owned(), keys, rekey_progress: tokio::sync::Mutex::default() });
            }
            let writes = vec![put_key_record(&keyring.first_only()), Write::Delete(init_marker())];
            match store.commit(Batch { checks: vec![Check::Absent(key_record())], writes }).await {
                // Another server on the same store may have written it first.
                Ok(_) | Err(CommitError::Conflict(_)) => {
                    record = store.get(&key_record(), Freshness::Linearizable).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the keys as last read.
    pub(crate) fn keys(&self) -> Arc<SealKeys> {
        Arc::clone(&self.keys.read())
    }

    /// Updates the keys from a key record; reads the key file again if the record names an unknown key.
    ///
    /// # Errors
    /// The file lacks a key that the record names, or cannot be read.
    pub(crate) async fn refresh(&self, record: &Record) -> Result<Arc<SealKeys>, SealKeyError> {
        let current = self.keys();
        if current.at >= record.modified {
            return Ok(current);
        }
        match SealKeys::new(&current.file, &record.value, record.modified) {
            Ok(keys) => Ok(self.store_keys(keys)),
            Err(_) => Ok(self.store_keys(active_keys(&self.file, &self.file(file::read).await?, record)?)),
        }
    }

    /// Reads the key file again in any case; with `generate` a new key is inserted before the others.
    ///
    /// # Errors
    /// See [`Sealer::refresh`]; the file cannot be replaced.
    pub(crate) async fn reload_file(&self, record: &Record, generate: bool) -> Result<Arc<SealKeys>, SealKeyError> {
        let mut keys = active_keys(&self.file, &self.file(file::read).await?, record)?;
        if generate {
            keys = active_keys(&self.file, &self.file(file::prepend).await?, record)?;
        }
        Ok(self.store_keys(keys))
    }

    /// Runs blocking work on the key file.
    async fn file(&self, work: fn(&Path) -> Result<Keyring, SealKeyError>) -> Result<Keyring, SealKeyError> {
        let path = self.file.clone();
        let outcome = tokio::task::spawn_blocking(move || work(&path)).await;
        outcome.unwrap_or_else(|error| Err(SealKeyError::Create { path: self.file.clone(), source: error.into() }))
    }

    fn store_keys(&self, keys: SealKeys) -> Arc<SealKeys> {
        let mut current = self.keys.write();
        if current.at <= keys.at {
            *current = Arc::new(keys);
        }
        Arc::clone(&current)
    }
}

fn active_keys(path: &Path, keyring: &Keyring, record: &Record) -> Result<SealKeys, SealKeyError> {
    let other = |expected| SealKeyError::Mismatch { path: path.to_owned(), found: keyring.ids(), expected };
    SealKeys::new(keyring, &record.value, record.modified).map_err(other)
}
