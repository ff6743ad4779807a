//! The loop that accepts and serves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::table::Table;
use super::{Limits, Listener, Peer, connection};
use crate::metrics::{self, Metrics};

impl Listener {
    /// Serves until `stop`, then lets requests in flight end, at most for `limits.drain`.
    pub async fn serve<S, F, B>(self, service: S, limits: Limits, stop: CancellationToken)
    where
        S: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let counts = Counts::of(&limits);
        let table = Arc::new(Table::new(limits.clone(), counts.connections()));
        let mut tasks = JoinSet::new();
        let mut sweep: Option<Instant> = None;
        let mut trouble = Trouble::default();
        let acceptor = limits.tls.clone().map(tokio_rustls::TlsAcceptor::from);
        let loopback = self.tcp_address().is_some_and(|address| address.ip().to_canonical().is_loopback());
        let mut http = hyper::server::conn::http1::Builder::new();
        // The table keeps time: hyper's own timer would cost each request an entry in the timer wheel. No
        // `pipeline_flush`: with it an answer is lost when bytes are left unread at the connection's end.
        http.header_read_timeout(None).max_header_size(limits.head_bytes);
        for id in 0.. {
            let accepted = loop {
                tokio::select! {
                    accepted = self.accept() => break Some(accepted),
                    () = stop.cancelled() => break None,
                    () = sleep_until(sweep) => sweep = table.sweep(),
                    () = table.attention.notified() => sweep = table.sweep(),
                    Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                }
            };
            let (stream, peer) = match accepted {
                None => break,
                Some(Ok(accepted)) => accepted,
                Some(Err(error)) => {
                    trouble.rest(&error, &table, &stop).await;
                    continue;
                }
            };
            trouble.over();
            if loopback && matches!(peer, Peer::Tcp(address) if !address.ip().is_loopback()) {
                counts.refuse("peer", &peer);
                continue;
            }
            if !table.make_room(&peer) {
                counts.refuse("connections", &peer);
                continue;
            }
            let first =
                Instant::now() + if acceptor.is_some() { limits.header_timeout } else { limits.first_byte_timeout };
            sweep = Some(sweep.map_or(first, |at| at.min(first)));
            table.enter(id, &peer, |state, entered| {
                let (http, service, acceptor, counts) =
                    (http.clone(), service.clone(), acceptor.clone(), counts.clone());
                tasks.spawn(async move {
                    let outcome = match acceptor {
                        None => connection::serve(http, stream, peer, service, state, &entered).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => connection::serve(http, stream, peer, service, state, &entered).await,
                            Err(_) => return counts.refuse("tls", &peer),
                        },
                    };
                    match outcome {
                        Err(error) if error.is_parse_too_large() => counts.refuse("head_size", &peer),
                        Err(error) if error.is_parse() => counts.refuse("malformed", &peer),
                        _ => {}
                    }
                })
            });
        }
        drop(self);
        table.close();
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, ended).await.is_err() {
            tasks.shutdown().await;
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Where refusals of this listener are counted and told.
#[derive(Debug, Clone)]
struct Counts(Option<(Metrics, Arc<str>)>);

impl Counts {
    fn of(limits: &Limits) -> Self {
        Self(limits.observed.as_ref().map(|it| (it.metrics.clone(), it.listener.as_str().into())))
    }

    fn connections(&self) -> Option<prometheus_client::metrics::gauge::Gauge> {
        let (metrics, listener) = self.0.as_ref()?;
        let label = metrics::Listener { listener: listener.to_string() };
        Some(metrics.local_connections.get_or_create(&label).clone())
    }

    fn refuse(&self, reason: &'static str, peer: &Peer) {
        let listener = self.0.as_ref().map_or("", |(_, listener)| listener);
        tracing::debug!(event = "local.connection.refused", listener, reason, uid = peer.uid(), pid = peer.pid());
        if let Some((metrics, listener)) = &self.0 {
            metrics.local_refused.get_or_create(&metrics::Refusal { listener: listener.to_string(), reason }).inc();
        }
    }
}

/// How accepting fails: descriptors or memory used up, mostly.
#[derive(Debug, Default)]
struct Trouble {
    pause: Duration,
    told: Option<Instant>,
}

impl Trouble {
    /// Gets a descriptor back from a connection that answers no request, or gives the system a moment.
    async fn rest(&mut self, error: &io::Error, table: &Table, stop: &CancellationToken) {
        // The caller's own going away is no trouble of ours.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        let now = Instant::now();
        if self.told.is_none_or(|told| now - told >= Self::QUIET) {
            self.told = Some(now);
            tracing::warn!(event = "listener.accept.failed", %error, "cannot accept connections for now");
        }
        let freed = table.free_one();
        self.pause = (self.pause * 2).clamp(Self::SHORTEST, Self::LONGEST);
        let pause = if freed { Self::SHORTEST } else { self.pause };
        let _ = tokio::time::timeout(pause, stop.cancelled()).await;
    }

    fn over(&mut self) {
        self.pause = Duration::ZERO;
    }

    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    const QUIET: Duration = Duration::from_secs(10);
}
