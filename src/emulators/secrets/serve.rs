//! Listener that can go offline and come back online.

use std::sync::Arc;
use std::time::Duration;

use keyward_http::server::{Listener, ListenerLimits};
use tokio_util::sync::CancellationToken;

use super::handler::RequestHandler;
use crate::ReservedPort;

/// Serves until `stop`; closes and reopens the listener as injected.
pub(super) async fn serve(
    first: Listener,
    port: ReservedPort,
    tls: Option<Arc<rustls::ServerConfig>>,
    handler: Arc<RequestHandler>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut offline = handler.faults().subscribe_offline();
    let mut listener = Some(first);
    loop {
        if let Some(listener) = listener.take() {
            let listener_stop = stop.child_token();
            let service = {
                let handler = Arc::clone(&handler);
                move |_peer, request| {
                    let handler = Arc::clone(&handler);
                    async move { handler.response(request).await }
                }
            };
            // An emulated outage breaks connections off: nothing is drained.
            let limits =
                ListenerLimits { drain: Duration::ZERO, tls: tls.clone().map(Into::into), ..ListenerLimits::default() };
            handler.faults().set_is_offline(false);
            let serving = listener.serve(service, limits, listener_stop.clone());
            let watching = async {
                let _ = offline.wait_for(|offline| *offline).await;
                listener_stop.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = serving => {}
                () = watching => {}
            }
            handler.faults().set_is_offline(true);
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = offline.wait_for(|offline| !*offline) => {}
        }
        listener = Some(port.listen()?);
    }
}
