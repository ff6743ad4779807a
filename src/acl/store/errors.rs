//! Errors of all store implementations.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use keyward_http::tls::CertificateError;
use keyward_machine::secure_dir::DirError;
use keyward_telemetry::error_code::ErrorCode;

use super::{Batch, FORMAT, Key};

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process: stop it, or configure another data folder", path.display())]
    InUse {
        /// Store file.
        path: PathBuf,
    },
    /// The store belongs to another datacenter.
    #[error("{store} belongs to datacenter {found:?}, but this server is of {expected:?}")]
    Datacenter {
        /// Store: its file, or its endpoints and prefix in etcd.
        store: String,
        /// Datacenter of the store.
        found: String,
        /// Datacenter of this server.
        expected: String,
    },
    /// The store has an unknown format version.
    #[error("{store} has format {found}, but this version supports {FORMAT}")]
    Format {
        /// Store: its file, or its endpoints and prefix in etcd.
        store: String,
        /// Format version of the store.
        found: String,
    },
    /// The folder cannot be created, or is writable by others.
    #[error(transparent)]
    Folder(#[from] DirError),
    /// A file could not be created or opened.
    #[error("cannot open {}", path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A certificate file of etcd's cannot be used.
    #[error("cannot use the certificates for etcd")]
    Certificate(#[from] CertificateError),
    /// The data is not a readable store.
    #[error("cannot read {store} as a store")]
    Damaged {
        /// Store: its file, or its endpoints and prefix in etcd.
        store: String,
        /// Cause.
        #[source]
        source: StoreError,
    },
    /// Page checksums of the file do not match.
    #[error(
        "{store} is damaged (page checksums do not match); check it with `keyward acl verify --dir DIR`, then put a \
         copy back, or move it away, start once with --new-store and restore a snapshot"
    )]
    PagesDamaged {
        /// Store file.
        store: String,
    },
    /// etcd cannot be reached.
    #[error("cannot open {store}: {advice}")]
    Unreachable {
        /// Endpoints and prefix.
        store: String,
        /// Advice for the operator.
        advice: &'static str,
        /// Cause.
        #[source]
        source: StoreError,
    },
}

/// Error of a store operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("the store failed")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
    /// The disk, or etcd's quota, is full.
    #[error("the disk of the store is full")]
    Full(#[source] Arc<dyn Error + Send + Sync>),
    /// The store is unreachable or timed out. Retrying may help.
    #[error("the store does not respond")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
    /// A record is malformed.
    #[error("the record {key} cannot be read")]
    Unreadable {
        /// Key of the record.
        key: String,
    },
    /// The store was closed, or its writer thread failed.
    #[error("the store's writer has stopped; restart keyward")]
    Stopped,
}

impl OpenError {
    /// Returns the code for operators.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::InUse { .. } => ErrorCode::StoreInUse,
            Self::Datacenter { .. } | Self::Format { .. } => ErrorCode::StoreFormat,
            Self::Folder(_) | Self::File { .. } => ErrorCode::StoreFailed,
            Self::Certificate(_) => ErrorCode::CertificateFile,
            Self::Damaged { .. } | Self::PagesDamaged { .. } => ErrorCode::StoreDamaged,
            Self::Unreachable { .. } => ErrorCode::StoreUnreachable,
        }
    }
}

impl StoreError {
    /// Returns the code for operators.
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            Self::Full(_) => ErrorCode::StoreFull,
            Self::Unavailable(_) => ErrorCode::StoreUnreachable,
            Self::Unreadable { .. } => ErrorCode::StoreDamaged,
            Self::Failed(_) | Self::Stopped => ErrorCode::StoreFailed,
        }
    }

    /// Wraps a cause.
    pub(super) fn failed(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(cause))
    }
}

/// Error of a commit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// A precondition failed because of a concurrent write.
    #[error("the record {} was changed concurrently", .0.as_str())]
    Conflict(Key),
    /// The batch exceeds the limits.
    #[error("the batch is larger than {} operations or {} bytes", Batch::MAX_OPERATIONS, Batch::MAX_BYTES)]
    TooLarge,
    /// The store failed and the batch was not written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store failed after accepting the batch, and it may have been written. Read before retrying: a second attempt
    /// may conflict with the first.
    #[error("the change may or may not have been written")]
    Unknown(#[source] StoreError),
}
