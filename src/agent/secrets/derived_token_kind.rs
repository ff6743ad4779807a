//! Kinds of derived tokens.

use std::time::Duration;

use crate::server_client::{CallError, DerivedTokenOptions, TokenVerdict};

/// Kind of a token derived from the session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedTokenKind {
    /// A child token.
    Child(DerivedTokenOptions),
    /// The session's token, response-wrapped with this TTL.
    Wrapped(Duration),
}

impl DerivedTokenKind {
    /// Returns advice about a refused creation, to append to its error; empty if the cause is unknown.
    pub(super) fn advice(&self, error: &CallError) -> String {
        match self {
            Self::Child(options) if error.verdict() == TokenVerdict::Denied => {
                format!("; the policies of the session's token must allow update on {}", options.path())
            }
            Self::Child(_) if error.refuses_batch_option() => {
                "; set token_type = service in the token role, or leave num_uses out".to_owned()
            }
            Self::Child(_) | Self::Wrapped(_) => String::new(),
        }
    }

    /// Returns true if the server ends the token after a number of uses.
    pub(super) const fn ends_by_use(&self) -> bool {
        matches!(self, Self::Child(options) if options.num_uses > 0)
    }
}
