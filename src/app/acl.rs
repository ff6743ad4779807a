//! The ACL server, opened from its options and joined to its sockets.

use std::time::Duration;

use keyward_acl::AclServer;
use keyward_config as config;
use keyward_http::server::{ActivatedSockets, Endpoint, Listener, ListenerLimits, ListenerMetrics};
use keyward_http::tls::ServerTls;
use keyward_telemetry::health::HealthHandle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::error_codes::ListenError;
use super::session::Shared;

/// ACL server with an open store and bound sockets that does not accept connections yet.
#[derive(Debug)]
pub(super) struct BuiltAclServer {
    service: AclServer,
    endpoints: Vec<Endpoint>,
    sockets: Vec<Listener>,
    connections: usize,
    tls: Option<ServerTls>,
    health: HealthHandle,
    listener_metrics: ListenerMetrics,
    shared: Shared,
}

impl BuiltAclServer {
    /// Opens the store and binds the sockets, each for this number of connections.
    pub(super) async fn build(
        options: &config::AclServer,
        connections: usize,
        inherited: &ActivatedSockets,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let tls = options.tls.as_ref().map(ServerTls::new).transpose()?;
        let service = AclServer::open(&options.service, shared.clock.clone(), shared.metrics.clone()).await?;
        let mut sockets = Vec::new();
        for endpoint in &options.endpoints {
            let socket = Listener::open(endpoint, inherited);
            let socket = if tls.is_some() { socket } else { socket.and_then(Listener::require_loopback) };
            sockets.push(socket.map_err(|error| ListenError::new("the ACL server", endpoint, error))?);
        }
        #[cfg(feature = "ui")]
        shared.ui_sources.set_acl(Some(keyward_http::in_process::InProcessService::new(
            audit::acl(shared, "ui").wrap(service.handler(None)),
        )));
        let health = shared.health.register("listener/acl", true, "not serving yet");
        let listener_metrics = ListenerMetrics { metrics: shared.metrics.clone(), listener: "acl".to_owned() };
        Ok(Self {
            service,
            endpoints: options.endpoints.clone(),
            sockets,
            connections,
            tls,
            health,
            listener_metrics,
            shared: shared.clone(),
        })
    }

    /// Bound addresses; a port 0 of the configuration is replaced by the actual port.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let actual_endpoint = |(endpoint, socket): (&Endpoint, &Listener)| {
            socket.tcp_address().map_or_else(|| endpoint.clone(), Endpoint::Tcp)
        };
        self.endpoints.iter().zip(&self.sockets).map(actual_endpoint).collect()
    }

    /// Serves until `stop`, then lets requests in flight end within `drain`.
    pub(super) async fn run(self, drain: Duration, stop: CancellationToken) -> anyhow::Result<()> {
        let mut serving = JoinSet::new();
        let endpoints = self.endpoints().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for socket in self.sockets {
            // TLS adds nothing on a unix socket: a process that can read along could read this process's memory.
            let tls = self.tls.clone().filter(|_| socket.tcp_address().is_some());
            let limits = ListenerLimits {
                connections: self.connections,
                per_user: (self.connections / 4).max(1),
                drain,
                tls,
                listener_metrics: Some(self.listener_metrics.clone()),
                refused_heads: Some(audit::refused_heads(&self.shared, "acl", "acl")),
                ..ListenerLimits::default()
            };
            let answering = audit::acl(&self.shared, "acl").wrap(self.service.handler(socket.tcp_address()));
            serving.spawn(socket.serve(answering, limits, stop.clone()));
        }
        self.health.set_target(endpoints);
        self.health.set_ready();
        let (ran, _) = tokio::join!(self.service.run(stop), serving.join_all());
        Ok(ran?)
    }
}
