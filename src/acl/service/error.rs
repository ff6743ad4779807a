//! Errors of the ACL service.

use crate::model::id::Id;
use crate::store::{CommitError, StoreError};

use super::rejection::{Conflict, Forbidden, InvalidRequest, NotFound, Unavailable};
use super::seal::SealError;

/// Error of an operation.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The object does not exist.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The name or id is taken, the namespace is marked for deletion, or another restore has priority.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The caller lacks a permission.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// No valid token has the secret: unknown, expired or deleted.
    #[error("ACL not found")]
    UnknownSecret,
    /// The request is forbidden for another reason than a missing privilege.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// A snapshot restore is in progress; all other operations are rejected.
    #[error("a snapshot restore is in progress: try again later")]
    Restoring,
    /// Repeated write conflicts on the same record.
    #[error("too many concurrent changes to the same record")]
    Contention,
    /// Temporarily impossible.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store rejected a batch.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A secret could not be encrypted or decrypted.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The uploaded snapshot could not be spooled to disk.
    #[error("cannot spool the snapshot to disk")]
    Spool(#[source] std::io::Error),
    /// A record could not be serialized as JSON.
    #[error("cannot serialize a record as JSON")]
    Encode(#[source] serde_json::Error),
    /// A restore failed after its marker was written: some records may be replaced already.
    #[error("the restore failed while it replaced the records: the store is closed; restore again with the same token")]
    RestoreFailed(#[source] Box<ServiceError>),
    /// A restore replaced all records, and failed to create the anonymous token afterwards.
    #[error("the records were restored, but the anonymous token may be missing: restart the server, which creates it")]
    AnonymousTokenMissing(#[source] Box<ServiceError>),
    /// A rekey failed after a change of the key file or, perhaps, of some tokens.
    #[error("the rekey failed before its end: repeat it without Generate")]
    RekeyFailed(#[source] Box<ServiceError>),
}

impl ServiceError {
    /// Returns true if the namespace of the operation does not exist.
    pub(crate) fn is_missing_namespace(&self) -> bool {
        matches!(self, Self::NotFound(NotFound::Namespace(_)))
    }
}

/// Details of a denied permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Accessor of the caller's token; `None` for the anonymous token.
    pub(crate) accessor: Option<Id>,
    /// Missing permission, such as `acl:read`.
    pub(crate) permission: String,
    /// Name of the resource, if it has one.
    pub(crate) name: Option<String>,
}

impl std::error::Error for Denied {}

impl std::fmt::Display for Denied {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.accessor {
            Some(accessor) => {
                write!(formatter, "Permission denied: token with AccessorID '{accessor}' lacks permission ")?;
            }
            None => formatter.write_str("Permission denied: anonymous token lacks permission ")?,
        }
        write!(formatter, "'{}'", self.permission)?;
        if let Some(name) = &self.name {
            write!(formatter, " on {name:?}")?;
        }
        if self.accessor.is_none() {
            formatter.write_str(". The anonymous token is used implicitly when a request does not specify a token.")?;
        }
        Ok(())
    }
}
