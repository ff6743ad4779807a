//! Services of this process that the pages show.

use std::sync::Arc;

use keyward_http::in_process::InProcessService;
use keyward_http::server::ListenerMetrics;
use keyward_machine::clock::Clock;
use keyward_telemetry::status::StatusDocument;
use parking_lot::RwLock;

/// Collaborators of the pages of one listener.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Ends sign-ins, and is what pages call now.
    pub clock: Clock,
    /// Counts responses and refusals.
    pub listener_metrics: ListenerMetrics,
    /// Status of the agent, with the sessions that the listener may show.
    pub agent: StatusSource,
    /// Parts that run beside the agent.
    pub sources: Sources,
}

/// Registry of the services of parts that run beside the pages. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<RwLock<Services>>);

#[derive(Debug, Default)]
struct Services {
    acl: Option<InProcessService>,
    gateway: Option<InProcessService>,
}

impl Sources {
    /// Sets the ACL server's API; `None` removes it.
    pub fn set_acl(&self, service: Option<InProcessService>) {
        self.0.write().acl = service;
    }

    /// Sets the gateway's own endpoints; `None` removes them.
    pub fn set_gateway(&self, service: Option<InProcessService>) {
        self.0.write().gateway = service;
    }

    /// Returns the ACL server's API, if the server runs here.
    pub(super) fn acl(&self) -> Option<InProcessService> {
        self.0.read().acl.clone()
    }

    /// Returns the gateway's own endpoints, if a gateway runs here.
    pub(super) fn gateway(&self) -> Option<InProcessService> {
        self.0.read().gateway.clone()
    }
}

/// Status of the agent, as `GET /agent/v1/status` returns it.
#[derive(Clone)]
pub struct StatusSource(Arc<ReadStatus>);

type ReadStatus = dyn Fn() -> StatusDocument + Send + Sync;

impl StatusSource {
    /// Wraps a function that takes the status.
    pub fn new(take: impl Fn() -> StatusDocument + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Takes the status.
    pub(super) fn read(&self) -> StatusDocument {
        (self.0)()
    }
}

impl std::fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatusSource")
    }
}
