//! The access-control service: tokens, roles, namespaces, and the login that turns a cloud identity into a token.
//!
//! A module names only modules above it in this list.

// 0: what is known, and the rules; pure
pub mod model;

// 1: where it is kept
pub mod store;

// 2: what is done with it
pub mod service;

// 3: how it is spoken to
pub mod api;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::model::policy::is_name;
use self::model::token::{MAX_TTL, MIN_TTL};
use self::service::keys::Fetcher;
use self::service::login::Methods;
use self::service::policies::Policies;
use self::service::seal::{KeyError, Sealer};
use self::service::tokens::{ServiceError, Tokens};
use self::store::Embedded;
use crate::clock::Clock;
use crate::tasks::{TaskError, Tasks};

/// What the service is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The folder of its store, made with mode 0700 where it is not there.
    pub data_dir: PathBuf,
    /// The file of the key that tokens are sealed with; `seal.key` in `data_dir`, made at first start, if not given.
    pub key_file: Option<PathBuf>,
    /// Name of the datacenter. A store remembers it and opens for no other.
    pub datacenter: String,
    /// The auth methods, by the name that is in the path of their login.
    pub methods: BTreeMap<String, service::login::Options>,
}

impl Options {
    /// All that is wrong with them, in words, each with the path of what it is about.
    pub fn mistakes(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut check = |holds: bool, path: String, text: &str| {
            if !holds {
                found.push((path, text.to_owned()));
            }
        };
        let form = "a name is 1 to 128 letters, digits, \"-\" and \"_\"";
        check(is_name(&self.datacenter), "datacenter".into(), form);
        for (name, method) in &self.methods {
            let path = format!("method.{name}");
            check(is_name(name), path.clone(), form);
            check(name != "token", path.clone(), "\"token\" is the path of the tokens' own calls; take another name");
            check(!method.trust.issuer.is_empty(), format!("{path}.issuer"), "it is empty");
            check(!method.trust.audience.is_empty(), format!("{path}.audience"), "it is empty");
            for (name, role) in &method.roles {
                let path = format!("{path}.role.{name}");
                check(is_name(name), path.clone(), form);
                check(role.policies.iter().all(|policy| is_name(policy)), format!("{path}.policies"), form);
                let ttl = (MIN_TTL..=MAX_TTL).contains(&role.ttl);
                check(ttl, format!("{path}.ttl"), "a token lives 1 minute to 24 hours");
                let mistake = role.bounds.mistake();
                check(mistake.is_none(), path, mistake.unwrap_or_default());
            }
        }
        found
    }
}

/// The service, open and not yet served.
#[derive(Debug)]
pub struct Service {
    rooms: api::Rooms,
    fetchers: Vec<Fetcher>,
}

impl Service {
    /// Opens the store and takes the key. Nothing is fetched yet.
    ///
    /// # Errors
    /// The options are wrong, or the store or the key cannot be taken.
    pub async fn open(options: &Options, clock: Clock) -> Result<Self, OpenError> {
        if let Some((path, text)) = options.mistakes().into_iter().next() {
            return Err(OpenError::Options { path, text });
        }
        let (folder, datacenter) = (options.data_dir.clone(), options.datacenter.clone());
        let opened = tokio::task::spawn_blocking(move || Embedded::open(&folder, &datacenter)).await;
        let store = Arc::new(opened.map_err(|_| OpenError::Broken)??);
        let key_file = options.key_file.clone().unwrap_or_else(|| options.data_dir.join("seal.key"));
        let sealer = Sealer::open(&key_file, &store).await?;
        let policies = Policies::new(Arc::clone(&store));
        let tokens = Arc::new(Tokens::new(store, sealer, clock.clone()));
        let (methods, fetchers) = Methods::new(&options.methods, Arc::clone(&tokens), &policies, &clock).await?;
        Ok(Self { rooms: api::Rooms { tokens, policies, methods: Arc::new(methods) }, fetchers })
    }

    /// Its routes, to be served by [`crate::http::listen`].
    pub fn router(&self) -> axum::Router {
        api::router(self.rooms.clone())
    }

    /// Does what goes on beside requests until `stop`: fetches the issuers' keys, without which no login succeeds, and
    /// destroys tokens whose end has come.
    ///
    /// # Errors
    /// One of these tasks panicked.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let mut tasks = Tasks::new(stop.clone());
        for fetcher in self.fetchers {
            let stop = stop.clone();
            tasks.start("access keys", async move {
                fetcher.run(stop).await;
                Ok(())
            });
        }
        let tokens = self.rooms.tokens;
        tasks.start("access sweep", async move {
            tokens.sweep_until(stop).await;
            Ok(())
        });
        tasks.run(STOPS_WITHIN).await
    }
}

/// Time for a sweep under way to end.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Why the service did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option is wrong.
    #[error("the access-control service's {path} cannot be used: {text}")]
    Options {
        /// Which.
        path: String,
        /// What is wrong with it.
        text: String,
    },
    /// The store did not open.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// The key cannot be taken.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store failed.
    #[error("the access-control service cannot prepare its store")]
    Service(#[from] ServiceError),
    /// Opening panicked.
    #[error("the access-control service's store broke while it was opened")]
    Broken,
}
