//! Key-value store of records with atomic batches of checks and writes. It knows neither tokens nor time.
//!
//! The operations of [`Store`] are those that both an embedded transaction and an etcd transaction with a watch
//! support, and a batch fits etcd's limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

mod batch;
mod errors;
mod revisions;
mod verification;
mod watchers;

pub(crate) mod embedded;

#[cfg(feature = "etcd")]
pub mod etcd;

pub use batch::{Batch, Check, Write};
pub use embedded::Embedded;
pub use errors::{CommitError, OpenError, StoreError};
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use verification::Verification;

/// Options of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOptions {
    /// Local file.
    Embedded {
        /// Data folder, created with mode 0700 if missing.
        data_dir: PathBuf,
    },
    /// etcd cluster.
    #[cfg(feature = "etcd")]
    Etcd(etcd::EtcdOptions),
}

impl StoreOptions {
    /// Returns the data folder of a local store.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Embedded { data_dir } => Some(data_dir),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => None,
        }
    }
}

/// Formats the location for operators.
impl std::fmt::Display for StoreOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded { data_dir } => write!(formatter, "{}", data_dir.display()),
            #[cfg(feature = "etcd")]
            Self::Etcd(options) => options.fmt(formatter),
        }
    }
}

/// Opens the store. A store of another datacenter is rejected.
pub async fn open(options: &StoreOptions, datacenter: &str) -> Result<Arc<dyn Store>, OpenError> {
    match options {
        StoreOptions::Embedded { data_dir } => {
            let folder = data_dir.clone();
            let datacenter = datacenter.to_owned();
            let opened = tokio::task::spawn_blocking(move || Embedded::open(&folder, &datacenter)).await;
            let broken = |_| OpenError::Damaged { store: data_dir.display().to_string(), source: StoreError::Stopped };
            Ok(Arc::new(opened.map_err(broken)??))
        }
        #[cfg(feature = "etcd")]
        StoreOptions::Etcd(options) => Ok(Arc::new(Etcd::open(options, datacenter).await?)),
    }
}

/// Format version of the store's contents, recorded in the store.
const FORMAT: &str = "1";

/// A store of records.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync {
    /// Returns the record; `None` if it does not exist.
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError>;

    /// Lists records under `prefix`, which ends with a slash, in key order.
    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError>;

    /// Starts an export of all records at the current revision.
    async fn export(&self) -> Result<Export, StoreError>;

    /// Commits a batch. On return the writes survive a crash of the process and the machine, if the disk honours syncs.
    /// Dropping the future does not cancel the commit. The error says whether it may have been written.
    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError>;

    /// Waits until a record under `prefix` (a key, or a prefix that ends with a slash) may be newer than `since`.
    /// Returns the newer revision of its kind; returns at once if another record of the kind is newer.
    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError>;

    /// Verifies that all records are present and intact, as far as the store can detect. Reads everything.
    async fn verify(&self) -> Result<Verification, StoreError> {
        Verification::without_checksums(self.export().await?).await
    }

    /// Returns the revision of the last change of a kind, or of all kinds if `kind` is empty: while it is the same,
    /// nothing read has changed. `None` if others write too, so that the store would have to be read.
    fn last(&self, kind: &str) -> Option<Revision> {
        let _ = kind;
        None
    }
}

/// Consistency of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Sees every write that was acknowledged before the read began.
    #[default]
    Linearizable,
    /// Sees the state of the nearest replica. The same as linearizable for a store without replicas.
    Stale,
}

/// Key of a record: segments joined by slashes, the first of which is the kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Joins segments, which contain no slash.
    pub fn new(segments: &[&str]) -> Self {
        Self(segments.join("/"))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last segment.
    pub fn last_segment(&self) -> &str {
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

/// Version of the store, incremented by each batch with writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Value; clones share it.
    pub value: Bytes,
    /// Revision that created it.
    pub created: Revision,
    /// Revision that changed it last.
    pub modified: Revision,
}

/// Page of a list request.
#[derive(Debug, Clone)]
pub struct Page {
    /// Returns only keys after this one.
    pub after: Option<Key>,
    /// Most records.
    pub limit: usize,
}

/// Page of a list in key order.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Keys and records.
    pub entries: Vec<(Key, Record)>,
    /// True if there are more.
    pub more: bool,
    /// Revision of the last change of the kind, including deletions.
    pub revision: Revision,
}

/// Export of all records at one revision during concurrent writes. It occupies store space until dropped.
#[derive(Debug)]
pub struct Export(ExportSource);

#[derive(Debug)]
enum ExportSource {
    Embedded(embedded::Export),
    #[cfg(feature = "etcd")]
    Etcd(etcd::Export),
}

impl Export {
    /// Returns the revision of the export.
    pub(crate) fn revision(&self) -> Revision {
        match &self.0 {
            ExportSource::Embedded(export) => export.revision(),
            #[cfg(feature = "etcd")]
            ExportSource::Etcd(export) => export.revision(),
        }
    }

    /// Returns the next records in key order, at most `limit`; empty at the end. Fails if the revision is no longer
    /// available.
    #[cfg_attr(not(feature = "etcd"), expect(clippy::unused_async, reason = "etcd is asked"))]
    pub async fn next(&mut self, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
        match &mut self.0 {
            ExportSource::Embedded(export) => export.next(limit),
            #[cfg(feature = "etcd")]
            ExportSource::Etcd(export) => export.next(limit).await,
        }
    }
}
