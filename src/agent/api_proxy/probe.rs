//! Probes of an unresponsive server: while callers get stale entries, one request at a time tests whether it responds again.

use std::pin::Pin;

use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// A request whose caller does not wait for it.
pub(super) type Probe = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs probes until `stop` is cancelled.
pub(super) async fn run(mut probes: Receiver<Probe>, stop: CancellationToken) {
    let all = async {
        while let Some(probe) = probes.recv().await {
            probe.await;
        }
    };
    stop.run_until_cancelled(all).await;
}
