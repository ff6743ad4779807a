//! Where records are kept: keys and bytes, written in batches of checks and writes. It knows no tokens and no time.
//!
//! Its operations (get, list, commit, changed) are those that an embedded transaction and an etcd transaction with a
//! watch both have, and a batch is no larger than etcd takes.

use std::path::PathBuf;

use crate::folder::FolderError;

pub mod embedded;
mod files;
mod tables;
mod watchers;
mod writer;

pub use embedded::Embedded;

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
    /// What was put.
    pub value: Vec<u8>,
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

/// What is to be written, and what must hold for that. All writes happen, or none.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// What must hold, before any of the writes.
    pub checks: Vec<Check>,
    /// What to write, in order.
    pub writes: Vec<Write>,
}

/// What must hold for a batch to be written.
#[derive(Debug, Clone)]
pub enum Check {
    /// There is no such record.
    Absent(Key),
    /// The record is as it was at that revision.
    Unchanged(Key, Revision),
}

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Makes or replaces a record.
    Put(Key, Vec<u8>),
    /// Removes a record, if it is there.
    Delete(Key),
}

impl Batch {
    /// Most checks, and most writes, of a batch.
    pub const MAX_OPERATIONS: usize = 128;

    /// Most bytes of keys and values.
    pub const MAX_BYTES: usize = 1024 * 1024;

    fn fits(&self) -> bool {
        let checks = self.checks.iter().map(|check| match check {
            Check::Absent(key) | Check::Unchanged(key, _) => key.0.len(),
        });
        let writes = self.writes.iter().map(|write| match write {
            Write::Put(key, value) => key.0.len() + value.len(),
            Write::Delete(key) => key.0.len(),
        });
        self.checks.len() <= Self::MAX_OPERATIONS
            && self.writes.len() <= Self::MAX_OPERATIONS
            && checks.chain(writes).sum::<usize>() <= Self::MAX_BYTES
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by another process: stop that one, or give this one a folder of its own", path.display())]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// It belongs to another datacenter.
    #[error("{} belongs to datacenter {found:?}, and this server is of {wanted:?}", path.display())]
    Datacenter {
        /// The store's file.
        path: PathBuf,
        /// The name that the store remembers.
        found: String,
        /// The name of this server.
        wanted: String,
    },
    /// It is in a format that this program does not know.
    #[error("{} has the format {found}, and this program knows {FORMAT}", path.display())]
    Format {
        /// The store's file.
        path: PathBuf,
        /// The format it has.
        found: String,
    },
    /// Its folder cannot be made, or others may write there.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file could not be made or opened.
    #[error("cannot open {}", path.display())]
    File {
        /// What could not be opened.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store's file cannot be read as one.
    #[error("cannot read {} as a store", path.display())]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: StoreError,
    },
}

const FORMAT: &str = "1";

/// Why a store could not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("the store failed")]
    Failed(#[source] std::sync::Arc<redb::Error>),
    /// A record is not in the form that this program writes.
    #[error("the record {key} cannot be read")]
    Unreadable {
        /// Its key.
        key: String,
    },
    /// The store was closed, or its writer broke.
    #[error("the store's writer has stopped")]
    Stopped,
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self::Failed(std::sync::Arc::new(error.into()))
    }
}

/// Why a batch was not written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// A check does not hold: someone else was faster.
    #[error("the record {} was changed by someone else", .0.as_str())]
    Conflict(Key),
    /// The batch is larger than any store takes.
    #[error("the batch is larger than {} operations or {} bytes", Batch::MAX_OPERATIONS, Batch::MAX_BYTES)]
    TooLarge,
    /// The store failed. Whether the batch was written is not known.
    #[error(transparent)]
    Store(#[from] StoreError),
}
