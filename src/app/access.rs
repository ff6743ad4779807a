//! The access-control service, opened from its options and joined to its socket.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::session::Shared;
use crate::access::Service;
use crate::config;
use crate::health::Reporter;
use crate::http::listen::{Inherited, Limits, Listener, Observed, router};
use crate::http::tls::Certificate;

/// The service, its store open and its socket bound, answering nobody yet.
#[derive(Debug)]
pub(super) struct BuiltAccess {
    service: Service,
    socket: Listener,
    tls: Option<Arc<rustls::ServerConfig>>,
    health: Reporter,
    observed: Observed,
}

impl BuiltAccess {
    /// Opens the store and binds the socket.
    ///
    /// # Errors
    /// The store, the certificate or the address cannot be used.
    pub(super) async fn build(
        options: &config::Access,
        inherited: &Inherited,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let tls = options.tls.as_ref().map(Certificate::server).transpose()?;
        let service = Service::open(&options.service, shared.clock.clone()).await?;
        let socket = Listener::open(&options.endpoint, inherited)
            .with_context(|| format!("the access-control service cannot listen on {}", options.endpoint))?;
        let health = shared.health.component("listener/access", true, "not serving yet");
        let observed = Observed { metrics: shared.metrics.clone(), listener: "access".to_owned() };
        Ok(Self { service, socket, tls, health, observed })
    }

    /// Serves until `stop`, then lets requests in flight end within `drain`.
    pub(super) async fn run(self, drain: Duration, stop: CancellationToken) -> anyhow::Result<()> {
        let limits = Limits { drain, tls: self.tls, observed: Some(self.observed), ..Limits::default() };
        let routes = router(self.service.router());
        self.health.ready();
        let served = self.socket.serve(routes, limits, stop.clone());
        let (ran, ()) = tokio::join!(self.service.run(stop), served);
        Ok(ran?)
    }
}
