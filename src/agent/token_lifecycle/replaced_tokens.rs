//! Tokens that logins have replaced and that may still be alive.

use std::sync::Arc;

use crate::token::Token;
use keyward_machine::clock::ClockReading;

/// Replaced tokens that may still be alive, oldest first; shutdown revokes them.
#[derive(Debug, Default)]
pub(super) struct ReplacedTokens(Vec<Arc<Token>>);

impl ReplacedTokens {
    /// Adds a replaced token, if there is one, and prunes the others.
    pub(super) fn add(&mut self, token: Option<Arc<Token>>, now: ClockReading) {
        self.0.extend(token);
        self.prune(now);
    }

    /// Drops tokens that have expired, and the oldest beyond [`MAX_REPLACED`].
    pub(super) fn prune(&mut self, now: ClockReading) {
        self.0.retain(|token| token.expires.is_none_or(|ends| !now.until(ends).is_zero()));
        self.0.drain(..self.0.len().saturating_sub(MAX_REPLACED));
    }

    /// Iterates over the tokens.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.0.iter()
    }
}

/// Largest number of replaced tokens; each costs a call at shutdown, and a healthy session has one.
const MAX_REPLACED: usize = 4;
