//! Caller tokens, derived from a session's token: one for all processes of a caller, or one for each process.
//!
//! Both are kept by [`crate::secrets::DerivedTokenManager`]. The token of a process is created when it first needs one
//! and revoked when it ends; `process_tokens` has the table, `process_token` one entry of it.

mod metrics;
mod revocation;
mod caller_token;
mod process_token;
mod process_tokens;
mod pending_token;
mod tokens;
mod token_map;

pub use caller_token::CallerToken;
pub use metrics::CallerTokenMetrics;
pub(crate) use pending_token::PendingProcessToken;
pub use process_tokens::{ProcessTokenDeps, ProcessTokens};
pub(crate) use token_map::TokenMap;
pub use tokens::{CallerTokenSource, CallerTokens};
