//! Tokens.

// 0: what one is to be, and its records
mod draft;
mod filter;
mod write;

// 1: what is done with them
mod create;
mod change;
mod read;
mod expanded;
mod list;
mod sweep;

pub use create::Made;
pub use draft::TokenDraft;
pub use expanded::Expanded;
pub use filter::TokenFilter;
pub use list::{Listed, TokenPages};
pub use write::NewToken;
pub(in crate::acl::service) use write::{TOKEN_ROWS, TokenRows};
