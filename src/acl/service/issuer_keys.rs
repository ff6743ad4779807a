//! The keys that issuers sign with: fetched when a login needs one, remembered, and never fetched often.
//!
//! A token that names an unknown key makes one fetch a minute and no more, whoever fails; a failed fetch keeps the keys
//! that were there; and many callers make one fetch. Where to fetch from is configured; a token has no say in it.

mod documents;
mod fixed;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jsonwebtoken::DecodingKey;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use url::Url;

use self::documents::FetchError;
use crate::acl::model::auth_method::Algorithm;
use crate::clock::{Clock, ClockReading};

pub use fixed::{PemError, pem_keys};

/// Where an issuer's keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The document that is fetched first.
    pub source: Source,
    /// Whom to trust in place of the system's authorities.
    pub authorities: Authorities,
}

/// Who vouches for the server that keys are fetched from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Authorities {
    /// Whom the system trusts.
    #[default]
    System,
    /// The certificates in a PEM file, which is read at each fetch.
    File(PathBuf),
    /// These certificates, in PEM.
    Pem(String),
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

/// The age from which on keys are fetched anew before they are used, so that one that the issuer withdrew is not trusted
/// for long.
pub const REFRESH: Duration = Duration::from_hours(1);

/// Longest wait of a login for keys.
const PATIENCE: Duration = Duration::from_secs(15);

/// Most keys that a token which names none is tried with.
const TRIED: usize = 16;

/// A public key of an issuer.
#[derive(Clone)]
pub struct IssuerKey {
    /// Its id, where it has one.
    id: Option<String>,
    /// The only algorithm that it is for, where it says so.
    algorithm: Option<String>,
    shape: Shape,
    key: DecodingKey,
}

impl std::fmt::Debug for IssuerKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "IssuerKey({:?}, {:?})", self.id, self.shape)
    }
}

/// What a key can be used with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Rsa,
    P256,
    P384,
}

impl IssuerKey {
    fn fits(&self, algorithm: Algorithm) -> bool {
        let shape = match algorithm {
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 | Algorithm::Ps256 => Shape::Rsa,
            Algorithm::Es256 => Shape::P256,
            Algorithm::Es384 => Shape::P384,
        };
        self.shape == shape && self.algorithm.as_ref().is_none_or(|only| only == algorithm.as_str())
    }
}

/// The keys of one issuer. Clones share them.
#[derive(Debug, Clone)]
pub struct Keys(Kept);

#[derive(Debug, Clone)]
enum Kept {
    Fixed(Arc<[IssuerKey]>),
    Fetched(Arc<Fetched>),
}

#[derive(Debug)]
struct Fetched {
    issuer: String,
    options: Options,
    states: watch::Sender<State>,
    under_way: AtomicBool,
    tasks: TaskTracker,
    clock: Clock,
}

#[derive(Debug, Clone, Default)]
struct State {
    keys: Arc<[IssuerKey]>,
    tries: u64,
    /// No fetch before then.
    next: Option<ClockReading>,
    /// When the keys that are held are to be fetched anew.
    old: Option<ClockReading>,
    failure: Option<Arc<str>>,
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
    /// The issuer has no key for signatures of that kind.
    #[error("failed to verify signature: the issuer has no key for {algorithm}")]
    None {
        /// How the token is signed.
        algorithm: &'static str,
    },
    /// The issuer's keys could not be fetched.
    #[error("failed to verify signature: fetching keys failed: {cause}")]
    Unavailable {
        /// Why.
        cause: String,
    },
}

impl Keys {
    /// The keys of `issuer`. Nothing is fetched until a key is asked for.
    pub fn fetched(issuer: String, options: Options, clock: Clock) -> Self {
        let states = watch::Sender::new(State::default());
        let fetched =
            Fetched { issuer, options, states, under_way: AtomicBool::new(false), tasks: TaskTracker::new(), clock };
        Self(Kept::Fetched(Arc::new(fetched)))
    }

    /// Keys that are known.
    pub fn fixed(keys: Vec<IssuerKey>) -> Self {
        Self(Kept::Fixed(keys.into()))
    }

    /// The keys that may have made a signature by that algorithm: the one of that id, or those that fit where the token
    /// names none. Fetched if need be and the time since the last fetch allows.
    ///
    /// # Errors
    /// There is no such key, or the keys could not be fetched.
    pub async fn get(&self, key_id: Option<&str>, algorithm: Algorithm) -> Result<Vec<DecodingKey>, KeyError> {
        let fetched = match &self.0 {
            // They have no ids: what the token says of one is no help.
            Kept::Fixed(keys) => {
                let found = select(keys, None, algorithm);
                return if found.is_empty() {
                    Err(KeyError::None { algorithm: algorithm.as_str() })
                } else {
                    Ok(found)
                };
            }
            Kept::Fetched(fetched) => fetched,
        };
        let mut states = fetched.states.subscribe();
        let before = states.borrow_and_update().clone();
        let found = select(&before.keys, key_id, algorithm);
        let has_come = |moment: Option<ClockReading>| moment.is_none_or(|moment| fetched.clock.has_reached(moment));
        if !found.is_empty() && !has_come(before.old) {
            return Ok(found);
        }
        if !has_come(before.next) {
            return if found.is_empty() { Err(before.lacks(key_id, algorithm)) } else { Ok(found) };
        }
        Arc::clone(fetched).begin();
        let published = states.wait_for(|state| state.tries > before.tries);
        match tokio::time::timeout(PATIENCE, published).await {
            Ok(Ok(state)) => {
                let found = select(&state.keys, key_id, algorithm);
                if found.is_empty() { Err(state.lacks(key_id, algorithm)) } else { Ok(found) }
            }
            _ if !found.is_empty() => Ok(found),
            _ => Err(KeyError::Unavailable { cause: "no answer in time".into() }),
        }
    }
}

fn select(keys: &[IssuerKey], key_id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
    let named = |key: &&IssuerKey| key_id.is_none() || key.id.as_deref() == key_id;
    let fitting = keys.iter().filter(|key| key.fits(algorithm)).filter(named);
    fitting.take(TRIED).map(|key| key.key.clone()).collect()
}

impl State {
    fn lacks(&self, key_id: Option<&str>, algorithm: Algorithm) -> KeyError {
        match (&self.failure, key_id) {
            (Some(cause), _) => KeyError::Unavailable { cause: cause.to_string() },
            (None, Some(key_id)) => KeyError::Unknown { key_id: key_id.chars().take(128).collect() },
            (None, None) => KeyError::None { algorithm: algorithm.as_str() },
        }
    }
}

impl Fetched {
    /// Begins a fetch, unless one is under way. It goes on when whoever began it goes away, so that it counts as one.
    fn begin(self: Arc<Self>) {
        if self.under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        self.tasks.clone().spawn(async move {
            let fetched = self.options.fetch(&self.issuer).await;
            self.publish(fetched);
            self.under_way.store(false, Ordering::Release);
        });
    }

    fn publish(&self, fetched: Result<Vec<IssuerKey>, FetchError>) {
        let issuer = &self.issuer;
        let (keys, failure) = match fetched {
            Ok(keys) => {
                tracing::info!(event = "acl.keys.fetched", %issuer, keys = keys.len(), "fetched signing keys");
                (Some(keys), None)
            }
            Err(error) => {
                let cause = error.to_string();
                tracing::warn!(event = "acl.keys.failed", %issuer, error = %cause, "cannot fetch signing keys; old ones stay");
                (None, Some(cause.into()))
            }
        };
        let now = self.clock.now();
        self.states.send_modify(|state| {
            if let Some(keys) = keys {
                state.keys = keys.into();
                state.old = Some(now + REFRESH);
            }
            state.failure = failure;
            state.tries += 1;
            state.next = Some(now + if state.keys.is_empty() { FIRST_FETCH } else { REFETCH });
        });
    }
}
