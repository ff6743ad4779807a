//! Tokens.

// 0: what one is to be, and its records
mod draft;
mod filter;
mod make;

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
pub use make::NewToken;
pub(in crate::access::service) use make::{TOKEN_ROWS, TokenRows};
