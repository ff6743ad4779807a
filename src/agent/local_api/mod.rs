//! The agent's own API for the tools on this machine: token, status, check, health, metrics.

use std::collections::BTreeMap;

use crate::agent::token::TokenFeed;
use crate::feed::Nudge;

/// What one listener serves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The listener's name.
    pub name: String,
    /// What it serves.
    pub serves: Serves,
    /// The sessions that it may serve, by name.
    pub sessions: BTreeMap<String, Source>,
}

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// Tokens, status, check, health and metrics, behind the guard.
    LocalApi,
    /// Health and metrics alone, to kubelets and scrapers.
    Health,
}

/// Where a session's token is read, and where its maker is rung.
#[derive(Debug, Clone)]
pub struct Source {
    /// The token.
    pub feed: TokenFeed,
    /// Rung by `POST /agent/v1/check`.
    pub nudge: Nudge,
}
