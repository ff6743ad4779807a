//! Operations on tokens.

// 0: drafts, filters and records
mod draft;
mod filter;
mod token_records;

// 1: operations
mod create;
mod change;
mod read;
mod explain;
mod expanded;
mod list;
mod sweep;

pub(crate) use create::CreatedToken;
pub(crate) use draft::TokenDraft;
pub(crate) use expanded::ExpandedToken;
pub(crate) use filter::TokenFilter;
pub(crate) use list::TokenPages;
pub(crate) use token_records::{MAX_TOKEN_RECORDS, TokenKeys, ValidatedToken};
