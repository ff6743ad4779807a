//! Why the service does not do what it was asked for.
//!
//! Texts of refusals are one line each, in the words that clients of such services look for.

use crate::acl::model::id::Id;
use crate::acl::store::{CommitError, StoreError};

use super::seal::SealError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request asks for what cannot be.
    #[error("{0}")]
    Invalid(String),
    /// What it is about is not there.
    #[error("{0}")]
    Missing(String),
    /// The name or id is taken, or the namespace is being deleted.
    #[error("{0}")]
    Taken(String),
    /// The caller may not.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The secret opens nothing: never given out, expired, or deleted.
    #[error("ACL not found")]
    UnknownSecret,
    /// A request for which there is no leave, in other words than those of a privilege.
    #[error("{0}")]
    Forbidden(String),
    /// The store is being restored, and shut for everything else.
    #[error("the service is being restored from a snapshot: try again once that has ended")]
    Restoring,
    /// Too many others change the same record.
    #[error("too many others change the same record")]
    Crowded,
    /// It cannot be done for now.
    #[error("{0}")]
    NotNow(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refused a batch.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A secret could not be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// What came could not be kept until it is judged.
    #[error("this server has no room for the snapshot")]
    Spool(#[source] std::io::Error),
    /// A record could not be written as JSON.
    #[error("a record cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
}

impl ServiceError {
    /// A request that cannot be, for a reason that a type tells.
    pub(super) fn invalid(reason: impl std::fmt::Display) -> Self {
        Self::Invalid(reason.to_string())
    }
}

/// Who may not do what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The caller's token; `None` for one who brought none.
    pub accessor: Option<Id>,
    /// What it lacks, such as `acl:read`.
    pub permission: String,
    /// What it is about, where that has a name.
    pub name: Option<String>,
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
