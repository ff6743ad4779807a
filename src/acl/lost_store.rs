//! Detection of a lost store: unlike one that never existed, it leaves its key file.
//!
//! A new store gives all rights to the first caller of the bootstrap. So a missing or empty store beside a key file is an error
//! until an operator requests a new one. A key file elsewhere may have been created before the first start; then the store's
//! folder, or an empty file in it, is the sign of a lost store. On etcd the key file always comes first.

use std::path::{Path, PathBuf};

use keyward_telemetry::error_code::ErrorCode;

use super::service::seal;
use super::store::{Batch, Check, CommitError, Embedded, Freshness, Page, Store, StoreError, StoreOptions};

impl LostStoreError {
    /// Returns the code for operators.
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Lost { .. } => Some(ErrorCode::StoreLost),
            Self::Present { .. } | Self::Etcd => None,
            Self::KeyFile { .. } => Some(ErrorCode::SealKeyInvalid),
            Self::Store(error) => Some(error.code()),
            Self::Commit(_) => Some(ErrorCode::StoreFailed),
        }
    }
}

/// Error of a lost store, or of a request for a new one.
#[derive(Debug, thiserror::Error)]
pub enum LostStoreError {
    /// The store is missing or empty although its key file exists.
    #[error(
        "the store {} is {state}, but its key file {} exists: restore the store file, or start once with --new-store, bootstrap at once (the first caller gets all rights) and restore a snapshot",
        store.display(),
        key_file.display()
    )]
    Lost {
        /// File of the store.
        store: PathBuf,
        /// Key file that exists.
        key_file: PathBuf,
        /// State of the store: `empty`, `gone` (no file) or `without records`.
        state: &'static str,
    },
    /// A new store was requested where one with records exists.
    #[error("{} holds records: start without --new-store, which is for a lost store", store.display())]
    Present {
        /// File of the store.
        store: PathBuf,
    },
    /// A new store was requested on etcd.
    #[error("--new-store is for a store in a folder: on etcd an empty prefix is used as it is")]
    Etcd,
    /// The key file cannot be checked.
    #[error("cannot access the key file {}", path.display())]
    KeyFile {
        /// Path of the key file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The mark of a new store could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Refuses a store whose file is missing or empty although its key file exists. It checks files only, and creates none.
pub(super) fn check_file(options: &StoreOptions, key_file: &Path) -> Result<(), LostStoreError> {
    let Some(folder) = options.folder() else { return Ok(()) };
    let store = Embedded::file_in(folder);
    let state = match std::fs::metadata(&store) {
        Ok(metadata) if metadata.len() == 0 => "empty",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.exists() => "gone",
        // Opening the store reports other errors.
        Ok(_) | Err(_) => return Ok(()),
    };
    refuse_if_key_exists(store, key_file, state)
}

/// Refuses an open store without a key record although the key file exists, unless it was created by `begin`.
pub(super) async fn check_records(
    options: &StoreOptions,
    key_file: &Path,
    store: &dyn Store,
) -> Result<(), LostStoreError> {
    // An interrupted first start with a key file from elsewhere leaves such a store too.
    let Some(folder) = options.folder().filter(|folder| key_file.parent() == Some(*folder)) else { return Ok(()) };
    for key in [seal::key_record(), seal::init_marker()] {
        if store.get(&key, Freshness::Linearizable).await?.is_some() {
            return Ok(());
        }
    }
    refuse_if_key_exists(Embedded::file_in(folder), key_file, "without records")
}

/// Marks a store without records as new, so that it may be opened with the existing key file.
pub(super) async fn begin(options: &StoreOptions, store: &dyn Store) -> Result<(), LostStoreError> {
    let folder = options.folder().ok_or(LostStoreError::Etcd)?;
    let mark = seal::init_marker();
    // Two, as one may be the mark.
    let listing = store.list("", Page { after: None, limit: 2 }, Freshness::Linearizable).await?;
    if listing.entries.iter().any(|(key, _)| *key != mark) {
        return Err(LostStoreError::Present { store: Embedded::file_in(folder) });
    }
    if listing.entries.is_empty() {
        store.commit(Batch { checks: vec![Check::Absent(mark)], writes: vec![seal::put_init_marker()] }).await?;
    }
    Ok(())
}

fn refuse_if_key_exists(store: PathBuf, key_file: &Path, state: &'static str) -> Result<(), LostStoreError> {
    match key_file.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(LostStoreError::Lost { store, key_file: key_file.to_owned(), state }),
        Err(source) => Err(LostStoreError::KeyFile { path: key_file.to_owned(), source }),
    }
}
