//! Why a store did not do what it was asked for, in words that fit every store.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Batch, FORMAT, Key};
use crate::secure_dir::DirError;

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
    #[error("{store} belongs to datacenter {found:?}, and this server is of {wanted:?}")]
    Datacenter {
        /// The store: its file, or its place in etcd.
        store: String,
        /// The name that the store remembers.
        found: String,
        /// The name of this server.
        wanted: String,
    },
    /// It is in a format that this program does not know.
    #[error("{store} has the format {found}, and this program knows {FORMAT}")]
    Format {
        /// The store: its file, or its place in etcd.
        store: String,
        /// The format it has.
        found: String,
    },
    /// Its folder cannot be made, or others may write there.
    #[error(transparent)]
    Folder(#[from] DirError),
    /// A file could not be made or opened.
    #[error("cannot open {}", path.display())]
    File {
        /// What could not be opened.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What is there cannot be read as a store.
    #[error("cannot read {store} as a store")]
    Damaged {
        /// The store: its file, or its place in etcd.
        store: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// Pages of its file were changed by something else.
    #[error(
        "{store} is damaged, as the checksums of its pages tell: look at it with `keyward acl verify --dir FOLDER`; put a copy \
         back, or move it away, start once with --new-store and restore a snapshot"
    )]
    PagesDamaged {
        /// The store's file.
        store: String,
    },
    /// It cannot be asked.
    #[error("cannot open {store}: {advice}")]
    Unreachable {
        /// Its place in etcd.
        store: String,
        /// What to look at.
        advice: &'static str,
        /// Why.
        #[source]
        source: StoreError,
    },
}

/// Why a store could not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("the store failed")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
    /// The disk has no room for a write.
    #[error("the disk of the store is full")]
    Full(#[source] Arc<dyn Error + Send + Sync>),
    /// It could not be reached, or gave no answer in time. It may do so later.
    #[error("the store does not answer")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
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

impl StoreError {
    /// A failure with its cause.
    pub(super) fn failed(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(cause))
    }
}

/// Why a batch was not written, or may not have been.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// A check does not hold: someone else was faster.
    #[error("the record {} was changed by someone else", .0.as_str())]
    Conflict(Key),
    /// The batch is larger than any store takes.
    #[error("the batch is larger than {} operations or {} bytes", Batch::MAX_OPERATIONS, Batch::MAX_BYTES)]
    TooLarge,
    /// The store failed, and the batch was not written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store failed after it was given the batch. Whether it was written is not known: who tries again must look
    /// first, or may meet a conflict with what it wrote itself.
    #[error("whether the change was written is not known")]
    Unknown(#[source] StoreError),
}
