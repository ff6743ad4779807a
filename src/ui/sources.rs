//! Services of this process that the pages show.

use std::sync::{Arc, PoisonError, RwLock};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::in_process::InProcessService;

/// Registry of the services of parts that run beside the pages. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct UiSources(Arc<RwLock<Services>>);

#[derive(Debug, Default)]
struct Services {
    acl: Option<InProcessService>,
    gateway: Option<InProcessService>,
}

impl UiSources {
    /// Sets the ACL server's API; `None` removes it.
    pub(crate) fn set_acl(&self, service: Option<InProcessService>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).acl = service;
    }

    /// Sets the gateway's own endpoints; `None` removes them.
    pub(crate) fn set_gateway(&self, service: Option<InProcessService>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).gateway = service;
    }

    /// Returns the ACL server's API, if the server runs here.
    pub(super) fn acl(&self) -> Option<InProcessService> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).acl.clone()
    }

    /// Returns the gateway's own endpoints, if a gateway runs here.
    pub(super) fn gateway(&self) -> Option<InProcessService> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).gateway.clone()
    }
}

/// Status of the agent, as `GET /agent/v1/status` returns it.
#[derive(Clone)]
pub(crate) struct StatusSource(Arc<dyn Fn() -> Value + Send + Sync>);

impl StatusSource {
    /// Wraps a function that takes the status.
    pub(crate) fn new(take: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Takes the status, as far as a page reads it.
    pub(super) fn read<T: DeserializeOwned + Default>(&self) -> T {
        serde_json::from_value((self.0)()).unwrap_or_default()
    }
}

impl std::fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatusSource")
    }
}
