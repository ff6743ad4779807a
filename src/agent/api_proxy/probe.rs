//! Probes of a server that gives no answers: while callers get what is kept, one request at a time finds out whether it
//! answers again.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::listener_metrics::ProxyListener;
use super::response_cache::{CachePolicy, CacheRefresh};
use crate::agent::secrets::cache::JoinOutcome;

/// A request whose caller does not wait for it.
pub(super) type Probe = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Inner {
    /// Asks the server in the background, unless a probe is under way.
    pub(super) fn probe(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        policy: &Arc<CachePolicy>,
        refresh: CacheRefresh,
        parts: request::Parts,
        body: Bytes,
    ) {
        let Ok(permit) = Arc::clone(&self.probe_permit).try_acquire_owned() else { return };
        let JoinOutcome::Leader(lead) = policy.cache.join(&refresh.key) else { return };
        let (inner, listener, policy) = (Arc::clone(self), Arc::clone(listener), Arc::clone(policy));
        let probe = async move {
            inner.refresh(&listener, &policy, refresh, lead, parts, body).await;
            drop(permit);
        };
        // Sending only fails during shutdown; then nobody waits for the answer.
        drop(self.probes.try_send(Box::pin(probe)));
    }
}

/// Runs probes until `stop`.
pub(super) async fn run(mut probes: Receiver<Probe>, stop: CancellationToken) {
    let all = async {
        while let Some(probe) = probes.recv().await {
            probe.await;
        }
    };
    stop.run_until_cancelled(all).await;
}
