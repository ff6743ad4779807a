//! Signing keys of identity issuers: fetched on demand, cached, and rate-limited.
//!
//! An unknown key id causes at most one fetch a minute, failed or not. A failed fetch keeps the previous keys, and
//! concurrent callers share one fetch. The URL is configured; tokens cannot influence it.

mod documents;
mod fixed;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jsonwebtoken::DecodingKey;
use keyward_http::client;
use keyward_machine::clock::{Clock, ClockReading};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use url::Url;

use self::documents::{FetchError, FetchedDocuments};
use crate::model::auth_method::Algorithm;
use crate::model::oidc::{DiscoveredEndpoints, OidcError, ProviderEndpoints};

pub(crate) use documents::parse_object;
pub(crate) use fixed::pem_keys;

/// Location of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerKeyOptions {
    /// Document to fetch.
    pub source: KeyDocument,
    /// CA certificates to trust.
    pub ca_certificates: CaSource,
}

/// CA certificates for the TLS connection to the key server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CaSource {
    /// System trust store.
    #[default]
    System,
    /// PEM file, read at each fetch.
    File(PathBuf),
    /// PEM text.
    Pem(String),
}

impl CaSource {
    /// Returns the options of a client of a server that these certificates verify.
    pub(super) fn client_options(&self, url: Url) -> client::ClientOptions {
        let tls = match self.clone() {
            Self::System => client::TlsOptions::default(),
            Self::File(path) => client::TlsOptions { ca_file: Some(path), ..client::TlsOptions::default() },
            Self::Pem(text) => client::TlsOptions { ca_pem: Some(text), ..client::TlsOptions::default() },
        };
        client::ClientOptions {
            address: client::ServerAddress::Url(url),
            tls,
            proxy: client::ProxyMode::Environment,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        }
    }
}

/// Key document. The URL is `https`, or `http` on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyDocument {
    /// `OpenID` discovery document with the URL of the key set. Its issuer must match the configured one.
    Discovery(Url),
    /// A JSON Web Key Set.
    Jwks(Url),
}

/// Minimum time between fetches while keys are cached.
pub(crate) const MIN_FETCH_INTERVAL: Duration = Duration::from_mins(1);

/// Minimum time between fetches while no keys are cached.
pub(crate) const EMPTY_FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// Age after which cached keys are fetched again before use, so that a withdrawn key is not trusted for long.
pub(crate) const MAX_KEY_AGE: Duration = Duration::from_hours(1);

/// Time that a login waits for a fetch.
const MAX_FETCH_WAIT: Duration = Duration::from_secs(15);

/// Most keys that are tried for a token without a key id.
/// Each costs the verification of a signature, for a caller that is not authenticated.
const MAX_CANDIDATES: usize = 16;

/// A public key of an issuer.
#[derive(Clone)]
pub(crate) struct IssuerKey {
    /// Key id, if any.
    id: Option<String>,
    /// Algorithm that the key is restricted to, if any.
    algorithm: Option<String>,
    key_type: KeyType,
    key: DecodingKey,
}

impl std::fmt::Debug for IssuerKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "IssuerKey({:?}, {:?})", self.id, self.key_type)
    }
}

/// Type of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyType {
    Rsa,
    P256,
    P384,
}

impl IssuerKey {
    fn fits(&self, algorithm: Algorithm) -> bool {
        let key_type = match algorithm {
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 | Algorithm::Ps256 => KeyType::Rsa,
            Algorithm::Es256 => KeyType::P256,
            Algorithm::Es384 => KeyType::P384,
        };
        self.key_type == key_type && self.algorithm.as_ref().is_none_or(|only| only == algorithm.as_str())
    }
}

/// Signing keys of one issuer. Clones share the cache.
#[derive(Debug, Clone)]
pub struct IssuerKeys(KeySet);

#[derive(Debug, Clone)]
enum KeySet {
    Fixed(Arc<[IssuerKey]>),
    Fetched(Arc<KeyFetcher>),
}

#[derive(Debug)]
struct KeyFetcher {
    issuer: String,
    options: IssuerKeyOptions,
    state_tx: watch::Sender<FetchState>,
    in_flight: AtomicBool,
    tasks: TaskTracker,
    clock: Clock,
}

#[derive(Debug, Clone, Default)]
struct FetchState {
    keys: Arc<[IssuerKey]>,
    endpoints: Arc<DiscoveredEndpoints>,
    tries: u64,
    /// Earliest time of the next fetch.
    next: Option<ClockReading>,
    /// Time at which the cached keys become too old.
    old: Option<ClockReading>,
    failure: Option<Arc<str>>,
}

/// Error of a key lookup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IssuerKeyError {
    /// The fetched keys do not contain the key id.
    #[error("failed to verify signature: the issuer has no key {key_id:?}")]
    Unknown {
        /// Key id from the token header.
        key_id: String,
    },
    /// No key fits the signature algorithm.
    #[error("failed to verify signature: the issuer has no key for {algorithm}")]
    None {
        /// Signature algorithm of the token.
        algorithm: &'static str,
    },
    /// The issuer's keys could not be fetched.
    #[error("failed to verify signature: fetching keys failed: {cause}")]
    Unavailable {
        /// Cause.
        cause: String,
    },
}

impl IssuerKeys {
    /// Returns the keys of `issuer`, which are fetched at the first lookup.
    pub(crate) fn fetched(issuer: String, options: IssuerKeyOptions, clock: Clock) -> Self {
        let state_tx = watch::Sender::new(FetchState::default());
        let fetched = KeyFetcher {
            issuer,
            options,
            state_tx,
            in_flight: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            clock,
        };
        Self(KeySet::Fetched(Arc::new(fetched)))
    }

    /// Returns a fixed set of keys.
    pub(crate) fn fixed(keys: Vec<IssuerKey>) -> Self {
        Self(KeySet::Fixed(keys.into()))
    }

    /// Returns the keys to verify a signature with: the one with `key_id`, or all that fit the algorithm if the token
    /// names none. Fetches them if needed and allowed by the rate limit.
    pub(crate) async fn get(
        &self,
        key_id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<DecodingKey>, IssuerKeyError> {
        let fetched = match &self.0 {
            // Fixed keys have no ids, so the token's key id is ignored.
            KeySet::Fixed(keys) => {
                let candidates = select(keys, None, algorithm);
                return if candidates.is_empty() {
                    Err(IssuerKeyError::None { algorithm: algorithm.as_str() })
                } else {
                    Ok(candidates)
                };
            }
            KeySet::Fetched(fetched) => fetched,
        };
        let candidates = |state: &FetchState| {
            let candidates = select(&state.keys, key_id, algorithm);
            (!candidates.is_empty()).then_some(candidates)
        };
        fetched.find(candidates).await.map_err(|state| state.key_error(key_id, algorithm))
    }

    /// Returns the endpoints that the discovery document names, which is fetched like the keys and with them.
    pub(crate) async fn endpoints(&self) -> Result<ProviderEndpoints, OidcError> {
        let parse = |state: &FetchState| ProviderEndpoints::parse(&state.endpoints);
        let found = match &self.0 {
            KeySet::Fixed(_) => Err(FetchState::default()),
            KeySet::Fetched(fetched) => fetched.find(|state| parse(state).ok()).await,
        };
        found.or_else(|state| match &state.failure {
            Some(cause) => Err(OidcError::Discovery(cause.to_string())),
            None => parse(&state),
        })
    }
}

fn select(keys: &[IssuerKey], key_id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
    let has_id = |key: &&IssuerKey| key_id.is_none() || key.id.as_deref() == key_id;
    let fitting = keys.iter().filter(|key| key.fits(algorithm)).filter(has_id);
    fitting.take(MAX_CANDIDATES).map(|key| key.key.clone()).collect()
}

impl FetchState {
    fn key_error(&self, key_id: Option<&str>, algorithm: Algorithm) -> IssuerKeyError {
        match (&self.failure, key_id) {
            (Some(cause), _) => IssuerKeyError::Unavailable { cause: cause.to_string() },
            (None, Some(key_id)) => IssuerKeyError::Unknown { key_id: key_id.chars().take(128).collect() },
            (None, None) => IssuerKeyError::None { algorithm: algorithm.as_str() },
        }
    }
}

impl KeyFetcher {
    /// Returns what `find` takes from the documents. They are fetched if they are too old or lack it, and the rate limit
    /// allows that. The error is the state that lacks it.
    async fn find<T>(self: &Arc<Self>, find: impl Fn(&FetchState) -> Option<T>) -> Result<T, FetchState> {
        let mut state_rx = self.state_tx.subscribe();
        let previous = state_rx.borrow_and_update().clone();
        let found = find(&previous);
        let is_due = |moment: Option<ClockReading>| moment.is_none_or(|moment| self.clock.has_reached(moment));
        if !is_due(previous.next) || found.is_some() && !is_due(previous.old) {
            return found.ok_or(previous);
        }
        Arc::clone(self).start_fetch();
        let published = state_rx.wait_for(|state| state.tries > previous.tries);
        match tokio::time::timeout(MAX_FETCH_WAIT, published).await {
            Ok(Ok(state)) => find(&state).ok_or_else(|| state.clone()),
            // The issuer does not answer: keys that are too old are better than no login.
            _ => found.ok_or_else(|| FetchState { failure: Some("no answer in time".into()), ..FetchState::default() }),
        }
    }

    /// Starts a fetch unless one is running. It continues if the caller goes away, so that it counts against the rate
    /// limit.
    fn start_fetch(self: Arc<Self>) {
        if self.in_flight.swap(true, Ordering::AcqRel) {
            return;
        }
        self.tasks.clone().spawn(async move {
            let fetched = self.options.fetch(&self.issuer).await;
            self.publish(fetched);
            self.in_flight.store(false, Ordering::Release);
        });
    }

    fn publish(&self, fetched: Result<FetchedDocuments, FetchError>) {
        let issuer = self.issuer.as_str();
        let (documents, failure) = match fetched {
            Ok(documents) => {
                let keys = documents.keys.len();
                tracing::info!(event = "acl.keys.fetched", issuer, keys, "fetched signing keys");
                (Some(documents), None)
            }
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(
                    event = "acl.keys.failed",
                    issuer,
                    error,
                    "cannot fetch signing keys, keeping the previous ones"
                );
                (None, Some(error.into()))
            }
        };
        let now = self.clock.now();
        self.state_tx.send_modify(|state| {
            if let Some(documents) = documents {
                state.keys = documents.keys.into();
                state.endpoints = Arc::new(documents.endpoints);
                state.old = Some(now + MAX_KEY_AGE);
            }
            state.failure = failure;
            state.tries += 1;
            state.next = Some(now + if state.keys.is_empty() { EMPTY_FETCH_INTERVAL } else { MIN_FETCH_INTERVAL });
        });
    }
}
