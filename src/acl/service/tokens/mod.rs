//! Operations on tokens.

// 0: drafts, filters and records
mod draft;
mod filter;
mod write;

// 1: operations
mod create;
mod change;
mod read;
mod expanded;
mod list;
mod sweep;

pub use create::{CreatedToken, Tokens};
pub use draft::TokenDraft;
pub use expanded::ExpandedToken;
pub use filter::TokenFilter;
pub use list::{ListedToken, TokenPages};
pub use sweep::TokenSweeper;
pub(in crate::acl::service) use write::{MAX_TOKEN_RECORDS, TokenKeys};
pub use write::{TokenRecords, ValidatedToken};
