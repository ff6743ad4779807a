//! Serves unix streams whole, for protocols that are not HTTP.

use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::accept::{AcceptBackoff, accept_queued};
use super::metrics::{HttpMetrics, ListenerLabel};
use super::{Listener, ListenerMetrics, Peer};

impl Listener {
    /// Hands each connection to `handler` until `stop`, then waits for the open ones, at most for `drain`. The socket is a
    /// unix socket: a TCP connection is closed unread.
    pub(crate) async fn serve_streams<F>(
        self,
        handler: impl Fn(UnixStream, Peer) -> F,
        listener_metrics: ListenerMetrics,
        drain: Duration,
        stop: CancellationToken,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let ListenerMetrics { metrics, listener } = listener_metrics;
        let label = ListenerLabel { listener: listener.clone() };
        let open = metrics.get::<HttpMetrics>().connections.get_or_create(&label).clone();
        let mut tasks = JoinSet::new();
        let mut backoff = AcceptBackoff::new(listener.into());
        loop {
            open.set(i64::try_from(tasks.len()).unwrap_or(i64::MAX));
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stop.cancelled() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            match accepted {
                Ok((Either::Right(stream), peer)) => {
                    backoff.reset();
                    tasks.spawn(handler(stream, peer));
                }
                Ok((Either::Left(_), _)) => {}
                // No connection is idle, so none can be closed for a new one.
                Err(error) => backoff.back_off(&error, || false, &stop).await,
            }
        }
        accept_queued(&self, |stream, peer| {
            if let Either::Right(stream) = stream {
                tasks.spawn(handler(stream, peer));
            }
        })
        .await;
        drop(self);
        let _ = tokio::time::timeout(drain, async { while tasks.join_next().await.is_some() {} }).await;
        open.set(0);
    }
}
