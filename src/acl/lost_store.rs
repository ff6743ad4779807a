//! Tells a store that was lost from one that was never there: a lost one leaves its key file.
//!
//! A new store lets whoever reaches it first make the token that may do all. So a missing or empty store beside a key file
//! is an error until an operator asks for a new one. A key file elsewhere may have been put there before the first start: the
//! folder of the store, or an empty file in it, tells of a store then. On etcd the key file always comes first.

use std::path::{Path, PathBuf};

use super::service::seal;
use super::store::{self, Batch, Check, CommitError, Embedded, Freshness, Page, Store, StoreError, StoreOptions};
use super::{OpenError, Options};

/// Why a store is not begun, or not begun anew.
#[derive(Debug, thiserror::Error)]
pub enum LostStoreError {
    /// The store is gone, and its key file is there.
    #[error(
        "the store {} is {state}, and its key file {} is there: put the store's file back; or start once with --new-store, \
         make the first token and restore a snapshot (a new store gives all rights to whoever bootstraps it first)",
        store.display(),
        key_file.display()
    )]
    Lost {
        /// The store's file.
        store: PathBuf,
        /// The key file.
        key_file: PathBuf,
        /// How the store was found.
        state: &'static str,
    },
    /// A new store was asked for, and there is one.
    #[error("{} holds records: start without --new-store, which is for a store that is gone", store.display())]
    Present {
        /// The store's file.
        store: PathBuf,
    },
    /// A new store was asked for on etcd.
    #[error("--new-store is for a store in a folder: a prefix of etcd without records is begun as it is")]
    Etcd,
    /// The key file cannot be looked for.
    #[error("cannot look for the key file {}", path.display())]
    KeyFile {
        /// The key file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not take the mark of a new one.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Refuses a store whose file is missing or empty while its key file is there. Looks at files alone and makes none.
pub(super) fn check_file(options: &StoreOptions, key_file: &Path) -> Result<(), LostStoreError> {
    let Some(folder) = options.folder() else { return Ok(()) };
    let store = Embedded::file_in(folder);
    let state = match std::fs::metadata(&store) {
        Ok(found) if found.len() == 0 => "empty",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.exists() => "gone",
        // What cannot be looked at is for the opening to report.
        Ok(_) | Err(_) => return Ok(()),
    };
    lost_if_key_is_there(store, key_file, state)
}

/// Refuses an open store that names no key while the key file is there, unless it was begun as a new one.
pub(super) async fn check_records(
    options: &StoreOptions,
    key_file: &Path,
    store: &dyn Store,
) -> Result<(), LostStoreError> {
    // A first start with a key file from elsewhere that broke off leaves such a store.
    let Some(folder) = options.folder().filter(|folder| key_file.parent() == Some(*folder)) else { return Ok(()) };
    for key in [seal::record(), seal::begun()] {
        if store.get(&key, Freshness::Linearizable).await?.is_some() {
            return Ok(());
        }
    }
    lost_if_key_is_there(Embedded::file_in(folder), key_file, "without records")
}

/// Begins a new store where the old one is gone: [`Service::open`](super::Service::open) takes it with the key file that is
/// there.
///
/// # Errors
/// The store holds records, is on etcd, or cannot be opened.
pub async fn begin_store(options: &Options) -> Result<(), OpenError> {
    let store = store::open(&options.store, &options.datacenter).await?;
    Ok(begin(&options.store, &*store).await?)
}

/// Marks a store without records as a new one, which may be opened with the key file that is there.
async fn begin(options: &StoreOptions, store: &dyn Store) -> Result<(), LostStoreError> {
    let folder = options.folder().ok_or(LostStoreError::Etcd)?;
    let mark = seal::begun();
    let listing = store.list("", Page { after: None, limit: 2 }, Freshness::Linearizable).await?;
    if listing.entries.iter().any(|(key, _)| *key != mark) {
        return Err(LostStoreError::Present { store: Embedded::file_in(folder) });
    }
    if listing.entries.is_empty() {
        store.commit(Batch { checks: vec![Check::Absent(mark)], writes: vec![seal::mark_begun()] }).await?;
    }
    Ok(())
}

fn lost_if_key_is_there(store: PathBuf, key_file: &Path, state: &'static str) -> Result<(), LostStoreError> {
    match key_file.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(LostStoreError::Lost { store, key_file: key_file.to_owned(), state }),
        Err(source) => Err(LostStoreError::KeyFile { path: key_file.to_owned(), source }),
    }
}
