//! Caller tokens, derived from a session's token: one for all processes of a caller, or one for each process.
//!
//! Both are kept by [`crate::secrets::DerivedTokenManager`]. The token of a process is created when it first needs one
//! and revoked when it ends; `process_tokens` has the table of them, and the task of each. `lookup` finds the token for a request.

mod metrics;
mod token_revoker;
mod token;
mod process_tokens;
mod lookup;

pub(crate) use lookup::PendingProcessToken;
pub use lookup::{CallerTokens, Source};
pub use metrics::CallerTokenMetrics;
pub use process_tokens::{ProcessTokenDeps, ProcessTokens};
pub use token::CallerToken;
pub(crate) use token::TokenMap;
