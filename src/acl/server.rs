//! The ACL server: opens the store, and runs the API and the background tasks over it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use keyward_http::server::{IncomingBody, Peer, ResponseFuture};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::{TaskError, TaskGroup};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use super::api::login_rate_limit::LoginRateLimiter;
use super::api::{self, ApiState};
use super::lost_store::{self, LostStoreError};
use super::options::AclOptions;
use super::service::acl_service::AclService;
use super::service::bootstrap::ResetFile;
use super::service::error::ServiceError;
use super::service::login::LoginMethods;
use super::service::seal::{SealKeyError, Sealer};
use super::service::snapshot::RestoreRunner;
use super::store::{self, Store};

/// Opened ACL server, not yet serving.
#[derive(Debug)]
pub struct AclServer {
    state: ApiState,
}

impl AclServer {
    /// Opens the store and the key file. It fetches no signing keys of issuers yet.
    pub async fn open(options: &AclOptions, clock: Clock, metrics: Metrics) -> Result<Self, AclOpenError> {
        validate(options)?;
        let key_file = options.key_file().unwrap_or_default();
        lost_store::check_file(&options.store, &key_file)?;
        let store = store::open(&options.store, &options.datacenter).await?;
        lost_store::check_records(&options.store, &key_file, &*store).await?;
        Self::with_store(store, options, clock, metrics).await
    }

    /// Opens the server over an open store. Of the store options only the folder is used.
    pub async fn with_store(
        store: Arc<dyn Store>,
        options: &AclOptions,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, AclOpenError> {
        validate(options)?;
        let key_file = options.key_file().unwrap_or_default();
        // Write access to this folder already implies access to the records or their key.
        let reset = ResetFile::in_dir(options.store.folder().or(key_file.parent()).unwrap_or(Path::new("/")));
        let sealer = Sealer::open(&key_file, &*store).await?;
        let datacenter = options.datacenter.clone();
        let service = AclService::new(store, sealer, datacenter, options.default_policy, clock.clone());
        let service = Arc::new(service.with_metrics(&metrics));
        match service.create_builtins().await {
            Err(ServiceError::Restoring) => {
                tracing::warn!(event = "acl.restore.unfinished", "a restore has not finished: restore again");
            }
            prepared => prepared?,
        }
        let restore_dir = options.store.folder().map_or_else(std::env::temp_dir, Path::to_owned);
        let methods = Arc::new(LoginMethods::new(&options.methods, Arc::clone(&service), &clock).await?);
        let login_limiter = Arc::new(LoginRateLimiter::new(options.api.login_limit));
        let state = ApiState {
            service,
            methods,
            restores: Arc::new(RestoreRunner::new(restore_dir)),
            login_limiter,
            response_cache: Arc::default(),
            options: Arc::new(options.api.clone()),
            reset,
            metrics,
            stop: CancellationToken::new(),
        };
        Ok(Self { state })
    }

    /// Builds the request handler of a socket bound to `address` (`None` for a unix socket), for [`keyward_http::server`].
    pub fn handler(
        &self,
        address: Option<SocketAddr>,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<api::ResponseBody> + Clone + Send + Sync + 'static {
        api::handler(self.state.clone(), address)
    }

    /// Runs the background tasks until `stop`: deletes expired tokens, namespaces marked for deletion, and the rules and tokens of
    /// deleted auth methods; verifies the records once. Fails only if a task panicked.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let mut tasks = TaskGroup::new(stop.clone());
        let service = self.state.service;
        let metrics = self.state.metrics;
        let remover = Arc::clone(&service);
        let until = stop.clone();
        tasks.start("acl removal", async move {
            tokio::join!(remover.namespaces().run_removals(until.clone()), remover.auth_methods().run_removals(until));
            Ok(())
        });
        let verifier = Arc::clone(&service);
        tasks.start("acl verify", async move {
            verifier.verify_at_start().await;
            Ok(())
        });
        let restores = self.state.restores;
        let until = stop.clone();
        // A restore that is cut off leaves the store locked.
        tasks.start("acl restore", async move {
            until.cancelled().await;
            restores.wait_until_idle().await;
            Ok(())
        });
        let blocking_queries = self.state.stop;
        let until = stop.clone();
        tasks.start("acl waiters", async move {
            until.cancelled().await;
            // Blocking queries are answered now, so that they do not delay the stop.
            blocking_queries.cancel();
            Ok(())
        });
        tasks.start("acl sweep", async move {
            service.token_sweeper().run(stop, &metrics).await;
            Ok(())
        });
        tasks.run(STOP_TIMEOUT).await
    }
}

/// Time for a running sweep to finish.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates a new store where the old one is lost; [`AclServer::open`] then accepts the existing key file. Fails if the
/// store holds records or is on etcd.
pub async fn begin_store(options: &AclOptions) -> Result<(), AclOpenError> {
    let store = store::open(&options.store, &options.datacenter).await?;
    Ok(lost_store::begin(&options.store, &*store).await?)
}

fn validate(options: &AclOptions) -> Result<(), AclOpenError> {
    match options.validation_errors().into_iter().next() {
        Some((path, text)) => Err(AclOpenError::Options { path, text }),
        None => Ok(()),
    }
}

impl AclOpenError {
    /// Returns the code for operators.
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Options { .. } => Some(ErrorCode::InvalidValue),
            Self::Store(error) => Some(error.code()),
            Self::LostStore(error) => error.code(),
            Self::Key(error) => Some(error.code()),
            Self::Service(_) => Some(ErrorCode::StoreFailed),
        }
    }
}

/// Error of opening the ACL server.
#[derive(Debug, thiserror::Error)]
pub enum AclOpenError {
    /// An option is invalid.
    #[error("invalid option {path} of the ACL server: {text}")]
    Options {
        /// Path of the option in the `acl` section.
        path: String,
        /// Reason, and what to do.
        text: String,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// The store is lost, or a new one was requested where one exists.
    #[error(transparent)]
    LostStore(#[from] LostStoreError),
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] SealKeyError),
    /// The store failed.
    #[error("cannot prepare the store of the ACL server")]
    Service(#[from] ServiceError),
}
