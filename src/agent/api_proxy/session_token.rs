//! The session's token as a request header, built once for each token.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::Clock;
use parking_lot::RwLock;

use super::token_search::TokenFinder;
use crate::token::{Generation, Token, TokenWatch};

/// Reads a session's token from its watch.
#[derive(Debug)]
pub(super) struct SessionToken {
    pub(super) watch: TokenWatch,
    clock: Clock,
    cached: RwLock<Option<TokenHeader>>,
}

/// A token and its header value.
#[derive(Debug, Clone)]
pub(super) struct TokenHeader {
    pub(super) token: Arc<Token>,
    /// Marked sensitive, so that `Debug` does not print it.
    pub(super) value: HeaderValue,
    /// Search for it in responses.
    pub(super) finder: Arc<TokenFinder>,
}

impl TokenHeader {
    pub(super) fn new(token: Arc<Token>) -> Self {
        let value = token.secret.header_value();
        let finder = Arc::new(TokenFinder::new(Arc::clone(&token)));
        Self { token, value, finder }
    }

    /// The login that issued the token.
    pub(super) fn generation(&self) -> Generation {
        self.token.generation
    }
}

/// Reason why there is no token, and when to try again.
#[derive(Debug, Clone)]
pub(super) struct TokenUnavailable {
    pub(super) reason: Arc<str>,
    pub(super) retry_after: Duration,
}

impl SessionToken {
    pub(super) fn new(watch: TokenWatch, clock: Clock) -> Self {
        Self { watch, clock, cached: RwLock::new(None) }
    }

    /// Returns true if the last check of the token had no result.
    pub(super) fn has_failed_check(&self) -> bool {
        self.watch.read(|state| state.update_error.is_some())
    }

    /// Returns the current token, unless a login is to replace it. A token past its end is refused even where the session has
    /// not published that yet.
    pub(super) fn current(&self) -> Result<TokenHeader, TokenUnavailable> {
        self.watch.read(|state| match &state.availability {
            Availability::Available(token) if token.expires.is_some_and(|end| self.clock.has_reached(end)) => {
                Err(TokenUnavailable { reason: "the token has expired".into(), retry_after: Duration::from_secs(1) })
            }
            Availability::Available(token) => match &state.awaited {
                None => Ok(self.header_for(token)),
                // The server would answer with its 403, which tells the caller nothing of the login that comes.
                Some(awaited) => {
                    let retry_after = state.remaining_wait(awaited.retry_after, self.clock.now());
                    Err(TokenUnavailable { reason: Arc::clone(&awaited.reason), retry_after })
                }
            },
            Availability::Unavailable { reason, retry_after } => {
                let retry_after = state.remaining_wait(*retry_after, self.clock.now());
                Err(TokenUnavailable { reason: Arc::clone(reason), retry_after })
            }
        })
    }

    fn header_for(&self, token: &Arc<Token>) -> TokenHeader {
        let cached = self.cached.read();
        if let Some(header) = cached.as_ref().filter(|header| Arc::ptr_eq(&header.token, token)) {
            return header.clone();
        }
        drop(cached);
        let header = TokenHeader::new(Arc::clone(token));
        *self.cached.write() = Some(header.clone());
        header
    }
}
