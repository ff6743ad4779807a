//! Where records are kept: keys and bytes, written in batches of checks and writes. It knows no tokens and no time.
//!
//! The operations of [`Store`] are those that an embedded transaction and an etcd transaction with a watch both have,
//! and a batch is no larger than etcd takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

mod batch;
mod errors;
mod revisions;
mod verification;
mod watchers;

pub mod embedded;

#[cfg(feature = "etcd")]
pub mod etcd;

pub use batch::{Batch, Check, Write};
pub use embedded::Embedded;
pub use errors::{CommitError, OpenError, StoreError};
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use verification::Verification;

/// Where records are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOptions {
    /// In one file of this machine.
    Embedded {
        /// Its folder, made with mode 0700 where it is not there.
        data_dir: PathBuf,
    },
    /// On an etcd cluster.
    #[cfg(feature = "etcd")]
    Etcd(etcd::Options),
}

impl StoreOptions {
    /// The folder of a store on this machine.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Embedded { data_dir } => Some(data_dir),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => None,
        }
    }
}

/// Where it is, as an operator would look for it.
impl std::fmt::Display for StoreOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded { data_dir } => write!(formatter, "{}", data_dir.display()),
            #[cfg(feature = "etcd")]
            Self::Etcd(options) => options.fmt(formatter),
        }
    }
}

/// Opens the store. Another datacenter's is refused.
///
/// # Errors
/// It cannot be opened or reached, or belongs to another datacenter.
pub async fn open(options: &StoreOptions, datacenter: &str) -> Result<Arc<dyn Store>, OpenError> {
    match options {
        StoreOptions::Embedded { data_dir } => {
            let (folder, datacenter) = (data_dir.clone(), datacenter.to_owned());
            let opened = tokio::task::spawn_blocking(move || Embedded::open(&folder, &datacenter)).await;
            let broken = |_| OpenError::Damaged { store: data_dir.display().to_string(), source: StoreError::Stopped };
            Ok(Arc::new(opened.map_err(broken)??))
        }
        #[cfg(feature = "etcd")]
        StoreOptions::Etcd(options) => Ok(Arc::new(Etcd::open(options, datacenter).await?)),
    }
}

/// The format of what a store keeps, which it remembers.
const FORMAT: &str = "1";

/// A store of records.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync {
    /// The record of that key.
    ///
    /// # Errors
    /// The store failed.
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError>;

    /// The records whose keys start with `prefix`, which ends with a slash, in the order of the keys.
    ///
    /// # Errors
    /// The store failed.
    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError>;

    /// All records of every kind, as they are at one moment.
    ///
    /// # Errors
    /// The store failed.
    async fn export(&self) -> Result<Export, StoreError>;

    /// Writes a batch. Once this returns, the writes outlive a crash of the process and of the machine, as far as the
    /// disk keeps what it promised. A caller that goes away in the meantime does not stop it.
    ///
    /// # Errors
    /// A check does not hold, the batch is too large, or the store failed; the error says whether it may be written.
    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError>;

    /// Returns once a record of `prefix` (a key, or the start of keys up to a slash) may be newer than `since`, with
    /// the revision of its kind, which is newer; at once where something of the same kind is.
    ///
    /// # Errors
    /// The store failed.
    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError>;

    /// Looks whether all records are there and whole, as far as the store can tell. Reads all of them.
    ///
    /// # Errors
    /// The store failed.
    async fn verify(&self) -> Result<Verification, StoreError> {
        Verification::without_checksums(self.export().await?).await
    }

    /// The last change of any record of that kind, or of all kinds where it is empty: while it stays, what was read stays
    /// as it was. `None` where others write too, and would have to be asked.
    fn last(&self, kind: &str) -> Option<Revision> {
        let _ = kind;
        None
    }
}

/// How new what is read has to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Every write that was acknowledged before the read began is seen.
    #[default]
    Linearizable,
    /// Whatever the nearest copy has. A store with one copy has nothing older.
    Stale,
}

/// A record's name: segments with slashes between them, the first of which is its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Joins segments, which hold no slash.
    pub fn of(segments: &[&str]) -> Self {
        Self(segments.join("/"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its last segment.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// A point in the store's history: it grows by one with each batch that writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What was put. A clone shares it.
    pub value: Bytes,
    /// The batch that put it when it was not there.
    pub created: Revision,
    /// The batch that put it last.
    pub modified: Revision,
}

/// Which part of a list is wanted.
#[derive(Debug, Clone)]
pub struct Page {
    /// Only keys that sort after this one.
    pub after: Option<Key>,
    /// At most so many.
    pub limit: usize,
}

/// A part of a list, in the order of the keys.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Keys and records.
    pub entries: Vec<(Key, Record)>,
    /// Whether there are more after them.
    pub more: bool,
    /// The last change of any record of that kind, removals counted in.
    pub revision: Revision,
}

/// All records as they were at one moment, whatever is written meanwhile. It costs the store space until it is dropped.
#[derive(Debug)]
pub struct Export(Exported);

#[derive(Debug)]
enum Exported {
    Embedded(embedded::Export),
    #[cfg(feature = "etcd")]
    Etcd(etcd::Export),
}

impl Export {
    /// The store's revision at that moment.
    pub fn revision(&self) -> Revision {
        match &self.0 {
            Exported::Embedded(export) => export.revision(),
            #[cfg(feature = "etcd")]
            Exported::Etcd(export) => export.revision(),
        }
    }

    /// The next records in the order of their keys, at most so many; none at the end.
    ///
    /// # Errors
    /// The store failed, or no longer knows how it was at that moment.
    #[cfg_attr(not(feature = "etcd"), expect(clippy::unused_async, reason = "etcd is asked"))]
    pub async fn next(&mut self, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
        match &mut self.0 {
            Exported::Embedded(export) => export.next(limit),
            #[cfg(feature = "etcd")]
            Exported::Etcd(export) => export.next(limit).await,
        }
    }
}
