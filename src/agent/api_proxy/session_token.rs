//! The session's token, ready to be put on requests: its header is made once for each token.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderValue;
use secrecy::ExposeSecret as _;

use crate::agent::token::{Generation, Token, TokenWatch};
use crate::clock::Clock;
use crate::credential_watch::Availability;

/// Reads a session's token.
#[derive(Debug)]
pub(super) struct Credential {
    pub(super) watch: TokenWatch,
    clock: Clock,
    written: RwLock<Option<Worn>>,
}

/// A token as requests wear it.
#[derive(Debug, Clone)]
pub(super) struct Worn {
    pub(super) token: Arc<Token>,
    /// Sensitive, so that nothing shows it.
    pub(super) value: HeaderValue,
}

impl Worn {
    /// Names the login that it came from.
    pub(super) fn generation(&self) -> Generation {
        self.token.generation
    }
}

/// Why there is no token, and when to ask again.
#[derive(Debug, Clone)]
pub(super) struct Absent {
    pub(super) reason: Arc<str>,
    pub(super) retry_after: Duration,
}

impl Credential {
    pub(super) fn new(watch: TokenWatch, clock: Clock) -> Self {
        Self { watch, clock, written: RwLock::new(None) }
    }

    /// The token of this moment. One whose end has come is none, though its maker has not said so yet.
    pub(super) fn current(&self) -> Result<Worn, Absent> {
        self.watch.with(|reading| match &reading.availability {
            Availability::Available(token) if token.expires.is_some_and(|end| self.clock.has_reached(end)) => {
                Err(Absent { reason: "the token has expired".into(), retry_after: Duration::from_secs(1) })
            }
            Availability::Available(token) => Ok(self.worn(token)),
            Availability::Unavailable { reason, retry_after } => {
                Err(Absent { reason: Arc::clone(reason), retry_after: *retry_after })
            }
        })
    }

    fn worn(&self, token: &Arc<Token>) -> Worn {
        let written = self.written.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(worn) = written.as_ref().filter(|worn| Arc::ptr_eq(&worn.token, token)) {
            return worn.clone();
        }
        drop(written);
        // A client token is visible ASCII, which every header takes.
        let mut value = HeaderValue::from_str(token.secret.secret().expose_secret())
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        let worn = Worn { token: Arc::clone(token), value };
        *self.written.write().unwrap_or_else(PoisonError::into_inner) = Some(worn.clone());
        worn
    }
}
