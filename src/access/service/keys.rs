//! The keys that an issuer signs with: fetched when a token names one that is not known, at most once a minute.
//!
//! A task of its own fetches, so that a caller that goes away stops nothing, and many callers make one fetch. Where to
//! fetch from is configured; a token has no say in it.

mod documents;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::DecodingKey;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::documents::FetchError;
use crate::clock::{Clock, Moment};

/// Where an issuer's keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The document that is fetched first.
    pub source: Source,
    /// PEM file of certificates to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
}

/// Which document is fetched. An `https` URL, or `http` on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An `OpenID` discovery document, which names the key set's URL. Its issuer must be the trusted one.
    Discovery(Url),
    /// A JSON Web Key Set.
    Jwks(Url),
}

/// Between two fetches, whatever tokens name, once keys are held.
pub const REFETCH: Duration = Duration::from_mins(1);

/// Between two fetches while no keys are held.
pub const FIRST_FETCH: Duration = Duration::from_secs(5);

/// The age at which keys are fetched anew unasked, so that one that the issuer withdrew is not trusted for long.
pub const REFRESH: Duration = Duration::from_hours(1);

/// Longest wait of a login for keys.
const PATIENCE: Duration = Duration::from_secs(15);

/// The keys of one issuer. Clones share them.
#[derive(Debug, Clone)]
pub struct Keys {
    states: watch::Receiver<State>,
    wish: Arc<Notify>,
    clock: Clock,
}

#[derive(Clone, Default)]
struct State {
    keys: Arc<HashMap<String, DecodingKey>>,
    tries: u64,
    /// No fetch before then.
    next: Option<Moment>,
    failure: Option<Arc<str>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "State({} keys, {} tries)", self.keys.len(), self.tries)
    }
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The issuer has no such key, as far as we were told.
    #[error("failed to verify signature: the issuer has no key {key_id:?}")]
    Unknown {
        /// The id that the token names.
        key_id: String,
    },
    /// The issuer's keys could not be fetched.
    #[error("failed to verify signature: fetching keys failed: {cause}")]
    Unavailable {
        /// Why.
        cause: String,
    },
}

impl Keys {
    /// The keys of `issuer`, and what fetches them: nothing is fetched until it runs and a key is asked for.
    pub fn new(issuer: String, options: Options, clock: Clock) -> (Self, Fetcher) {
        let (states, receiver) = watch::channel(State::default());
        let keys = Self { states: receiver, wish: Arc::new(Notify::new()), clock };
        let fetcher = Fetcher { issuer, options, states, wish: Arc::clone(&keys.wish), clock: keys.clock.clone() };
        (keys, fetcher)
    }

    /// The key of that id, fetched if need be and the time since the last fetch allows.
    ///
    /// # Errors
    /// There is no such key, or the keys could not be fetched.
    pub async fn get(&self, key_id: &str) -> Result<DecodingKey, KeyError> {
        let mut states = self.states.clone();
        let before = states.borrow_and_update().clone();
        if let Some(key) = before.keys.get(key_id) {
            return Ok(key.clone());
        }
        if before.next.is_some_and(|next| !self.clock.now().until(next).is_zero()) {
            return Err(before.lacks(key_id));
        }
        self.wish.notify_one();
        let fetched = states.wait_for(|state| state.tries > before.tries);
        match tokio::time::timeout(PATIENCE, fetched).await {
            Ok(Ok(state)) => state.keys.get(key_id).cloned().ok_or_else(|| state.lacks(key_id)),
            _ => Err(KeyError::Unavailable { cause: "no answer in time".into() }),
        }
    }
}

impl State {
    fn lacks(&self, key_id: &str) -> KeyError {
        match &self.failure {
            Some(cause) => KeyError::Unavailable { cause: cause.to_string() },
            None => KeyError::Unknown { key_id: key_id.chars().take(128).collect() },
        }
    }
}

/// Fetches one issuer's keys.
#[derive(Debug)]
pub struct Fetcher {
    issuer: String,
    options: Options,
    states: watch::Sender<State>,
    wish: Arc<Notify>,
    clock: Clock,
}

impl Fetcher {
    /// Fetches when a key is asked for, and from time to time, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let state = self.states.borrow().clone();
            let refresh = async {
                if state.keys.is_empty() { std::future::pending().await } else { self.clock.sleep(REFRESH).await }
            };
            tokio::select! {
                () = self.wish.notified() => {}
                () = refresh => {}
                () = stop.cancelled() => return,
            }
            // A wish from before the last fetch ended finds the time not come; its wisher has had its answer.
            if state.next.is_some_and(|next| !self.clock.now().until(next).is_zero()) {
                continue;
            }
            let Some(fetched) = stop.run_until_cancelled(self.options.fetch(&self.issuer)).await else { return };
            self.publish(fetched);
        }
    }

    fn publish(&self, fetched: Result<HashMap<String, DecodingKey>, FetchError>) {
        let issuer = &self.issuer;
        let (keys, failure) = match fetched {
            Ok(keys) => {
                tracing::info!(event = "access.keys.fetched", %issuer, keys = keys.len(), "fetched signing keys");
                (Some(Arc::new(keys)), None)
            }
            Err(error) => {
                let cause = error.to_string();
                tracing::warn!(event = "access.keys.failed", %issuer, %cause, "cannot fetch signing keys; old ones stay");
                (None, Some(cause.into()))
            }
        };
        self.states.send_modify(|state| {
            state.keys = keys.unwrap_or_else(|| Arc::clone(&state.keys));
            state.failure = failure;
            state.tries += 1;
            let pause = if state.keys.is_empty() { FIRST_FETCH } else { REFETCH };
            state.next = Some(self.clock.now() + pause);
        });
    }
}
