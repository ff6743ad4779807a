//! The access-control service: tokens, roles, namespaces, and the login that turns a cloud identity into a token.
//!
//! A module names only modules above it in this list.

// 0: what is known, and the rules; pure
pub mod model;

// 1: where it is kept
pub mod store;

// 2: what is done with it
pub mod service;

// 3: a look at the store before it is opened
mod lost_store;

// 4: how it is spoken to, strangers to each other
pub mod api;
pub mod client;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use self::api::Rooms;
use self::api::login_rate_limit::Limiter;
pub use self::lost_store::{LostStoreError, begin_store};
use self::model::authorize::DefaultPolicy;
use self::model::names::is_name;
use self::model::token::{MAX_TTL, MIN_TTL};
use self::service::acl_service::Directory;
use self::service::bootstrap::ResetFile;
use self::service::error::ServiceError;
use self::service::login::Methods;
use self::service::seal::{KeyError, Sealer};
use self::service::snapshot::Restores;
use self::store::{Store, StoreOptions};
use crate::clock::Clock;
use crate::http::server::{Answering, Peer};
use crate::metrics::Metrics;
use crate::tasks::{TaskError, TaskGroup};

/// What the service is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where its records are kept.
    pub store: StoreOptions,
    /// The file of the keys that tokens are sealed with; `seal.key` beside an embedded store, made at first start, if not
    /// given.
    pub key_file: Option<PathBuf>,
    /// Name of the datacenter. A store remembers it and opens for no other.
    pub datacenter: String,
    /// What holds where no rule says anything.
    pub default_policy: DefaultPolicy,
    /// How its API is spoken.
    pub api: api::Options,
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
        let limit = self.api.login_limit;
        check(limit.burst > 0, "login_burst".into(), "it is zero: nobody could log in");
        check(limit.per_second > 0, "login_rate".into(), "it is zero: nobody could log in");
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
        #[cfg(feature = "etcd")]
        if let StoreOptions::Etcd(options) = &self.store {
            for (name, text) in options.mistakes() {
                check(false, format!("etcd.{name}"), text);
            }
        }
        check(
            self.key_file().is_some(),
            "key_file".into(),
            "it is missing, and the store has no folder where one could be made",
        );
        found
    }

    fn sound(&self) -> Result<(), OpenError> {
        match self.mistakes().into_iter().next() {
            Some((path, text)) => Err(OpenError::Options { path, text }),
            None => Ok(()),
        }
    }

    fn key_file(&self) -> Option<PathBuf> {
        self.key_file.clone().or_else(|| Some(self.store.folder()?.join("seal.key")))
    }
}

/// The service, open and not yet served.
#[derive(Debug)]
pub struct Service {
    rooms: Rooms,
}

impl Service {
    /// Opens the store and takes the key. Nothing is fetched yet.
    ///
    /// # Errors
    /// The options are wrong, or the store or the key cannot be taken.
    pub async fn open(options: &Options, clock: Clock, metrics: Metrics) -> Result<Self, OpenError> {
        options.sound()?;
        let key_file = options.key_file().unwrap_or_default();
        lost_store::check_file(&options.store, &key_file)?;
        let store = store::open(&options.store, &options.datacenter).await?;
        lost_store::check_records(&options.store, &key_file, &*store).await?;
        Self::over(store, options, clock, metrics).await
    }

    /// The same over a store that is open already; what the options say of one does not count, but for its folder.
    ///
    /// # Errors
    /// The options are wrong, the key cannot be taken, or the store failed.
    pub async fn over(
        store: Arc<dyn Store>,
        options: &Options,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, OpenError> {
        options.sound()?;
        let key_file = options.key_file().unwrap_or_default();
        // Who may put a file there has the records or their key anyway.
        let reset = ResetFile::of(options.store.folder().or(key_file.parent()).unwrap_or(Path::new("/")));
        let sealer = Sealer::open(&key_file, &*store).await?;
        let datacenter = options.datacenter.clone();
        let directory = Directory::new(store, sealer, datacenter, options.default_policy, clock.clone());
        let directory = Arc::new(directory.counting(&metrics));
        match directory.prepare().await {
            Err(ServiceError::Restoring) => {
                tracing::warn!(event = "acl.restore.unfinished", "a restore has not ended: restore again");
            }
            prepared => prepared?,
        }
        let restores = options.store.folder().map_or_else(std::env::temp_dir, Path::to_owned);
        let restores = Arc::new(Restores::new(restores));
        let methods = Methods::new(&options.methods, Arc::clone(&directory), &clock).await?;
        let api_options = Arc::new(options.api.clone());
        let stop = CancellationToken::new();
        let limiter = Arc::new(Limiter::new(options.api.login_limit));
        let methods = Arc::new(methods);
        let (options, answers) = (api_options, Arc::default());
        Ok(Self { rooms: Rooms { directory, methods, restores, limiter, answers, options, reset, metrics, stop } })
    }

    /// Answers requests of a socket bound to `address` (`None` for a unix socket), to be served by [`crate::http::server`].
    pub fn answering(
        &self,
        address: Option<SocketAddr>,
    ) -> impl Fn(Peer, Request<Incoming>) -> Answering<api::Body> + Clone + Send + 'static {
        api::service(self.rooms.clone(), address)
    }

    /// Does what goes on beside requests until `stop`: destroys tokens whose end has come, and removes namespaces that are
    /// marked for it and what deleted auth methods leave.
    ///
    /// # Errors
    /// One of these tasks panicked.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let mut tasks = TaskGroup::new(stop.clone());
        let (directory, metrics) = (self.rooms.directory, self.rooms.metrics);
        let (remover, until) = (Arc::clone(&directory), stop.clone());
        tasks.start("acl removal", async move {
            tokio::join!(remover.remove_namespaces_until(until.clone()), remover.remove_methods_until(until));
            Ok(())
        });
        let verifier = Arc::clone(&directory);
        tasks.start("acl verify", async move {
            verifier.verify_at_start().await;
            Ok(())
        });
        let (restores, until) = (self.rooms.restores, stop.clone());
        tasks.start("acl restore", async move {
            until.cancelled().await;
            restores.ended().await;
            Ok(())
        });
        let (waiting, until) = (self.rooms.stop, stop.clone());
        tasks.start("acl waiters", async move {
            until.cancelled().await;
            // Those who wait for a change are answered, so that they do not hold the end up.
            waiting.cancel();
            Ok(())
        });
        tasks.start("acl sweep", async move {
            directory.sweep_until(stop, &metrics).await;
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
    /// The store is lost, or is to be begun where there is one.
    #[error(transparent)]
    LostStore(#[from] LostStoreError),
    /// The key cannot be taken.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store failed.
    #[error("the access-control service cannot prepare its store")]
    Service(#[from] ServiceError),
}
