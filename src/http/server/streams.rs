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
    pub async fn serve_streams<F>(
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
            // In this order, as for HTTP: a listener that was stopped accepts nothing more by its old rules.
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                accepted = self.accept() => accepted,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use keyward_telemetry::metrics::Metrics;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::server::{Endpoint, UnixSocket};

    #[tokio::test]
    async fn a_stopped_listener_leaves_a_client_to_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let served = AtomicUsize::new(0);
        // Many times, as an order by chance would be right in every second.
        for number in 0..32 {
            let path = folder.path().join(number.to_string());
            let socket = UnixSocket { path: path.clone(), mode: 0o600, owner: None, group: None };
            let listener = Listener::bind(&Endpoint::Unix(socket)).unwrap();
            let successor = listener.clone_for_successor().unwrap();
            let _client = UnixStream::connect(&path).await.unwrap();
            // Once this later event is known, that of the client is.
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(b"x").await.unwrap();
            far.readable().await.unwrap();
            listener.hand_over();
            let stop = CancellationToken::new();
            stop.cancel();
            let handler = |_: UnixStream, _: Peer| {
                served.fetch_add(1, Ordering::Relaxed);
                std::future::ready(())
            };
            let listener_metrics = ListenerMetrics { metrics: Metrics::default(), listener: "test".to_owned() };
            listener.serve_streams(handler, listener_metrics, Duration::ZERO, stop).await;
            assert_eq!(served.load(Ordering::Relaxed), 0, "{number}");
            assert!(successor.accept().await.is_ok(), "{number}");
        }
    }
}
