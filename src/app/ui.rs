//! Pages for browsers, joined to what they show.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use keyward_config as config;
use keyward_http::guard::AccessMode;
use keyward_http::server::{IncomingBody, Listener, ListenerMetrics, Peer, ResponseFuture};
use keyward_telemetry::recent_events;
use keyward_ui::{self as ui, StatusSource};

use super::session::Shared;

/// Builds the service of a `ui` listener; `None` where the socket is not TCP or no key is configured.
pub(super) fn service(
    options: &config::Listener,
    socket: &Listener,
    tls: bool,
    shared: &Shared,
) -> Option<impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<Full<Bytes>> + Clone + Send + use<> + 'static> {
    let (Some(address), AccessMode::Key(key)) = (socket.tcp_address(), &options.guard.admit) else {
        tracing::error!(event = "ui.not_served", listener = options.name, "a ui listener needs a TCP socket and a key");
        return None;
    };
    let registry = shared.status_registry.clone();
    let health = shared.health.clone();
    let sessions = shared.session_statuses.clone();
    let session_names = options.sessions.clone();
    let agent = StatusSource::new(move || {
        let mut sessions = sessions.sessions();
        sessions.retain(|name, _| session_names.contains(name));
        registry.collect(&health, sessions)
    });
    let listener_metrics = ListenerMetrics { metrics: shared.metrics.clone(), listener: options.name.clone() };
    let deps = ui::Deps { clock: shared.clock.clone(), listener_metrics, agent, sources: shared.ui_sources.clone() };
    let allowed_hosts = options.guard.allowed_hosts.clone();
    recent_events::enable();
    let scheme = if tls { "https" } else { "http" };
    tracing::info!(
        event = "ui.started",
        listener = options.name,
        url = format!("{scheme}://{address}/"),
        "serving pages for browsers"
    );
    Some(ui::service(ui::Options { key: key.clone(), allowed_hosts, address, tls }, deps))
}
