//! Sinks and listeners, built from their options and joined to the sessions that they drink from.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::session::Shared;
use crate::agent::local_api;
use crate::agent::local_api::Source;
use crate::agent::sinks::FileSink;
use crate::agent::token::TokenFeed;
use crate::config;
use crate::health::Reporter;
use crate::http::listen::{Inherited, Limits, Listener, Observed};

/// A sink that has written nothing yet.
#[derive(Debug)]
pub(super) struct BuiltSink {
    pub(super) options: config::Sink,
    feed: TokenFeed,
    health: Reporter,
    shared: Shared,
}

/// What a running sink is told.
#[derive(Debug, Clone, Default)]
pub(super) struct SinkOrders {
    /// Cancelled to stop it.
    pub(super) stop: CancellationToken,
    /// Cancelled before `stop` where the token is to be revoked, so that it must not stay in the file.
    pub(super) clear: CancellationToken,
    /// Cancelled by the sink once it has let go of its file.
    pub(super) done: CancellationToken,
}

impl BuiltSink {
    pub(super) fn build(options: config::Sink, feed: TokenFeed, shared: &Shared) -> Self {
        let sink = &options.options;
        let health = shared.health.component(format!("sink/{}", sink.name), sink.required, "not written yet");
        Self { options, feed, health, shared: shared.clone() }
    }

    pub(super) fn name(&self) -> &str {
        &self.options.options.name
    }

    /// Writes the file until it is told to stop. Begins once those that it follows, which may hold the same file, are
    /// done.
    pub(super) async fn run(self, orders: SinkOrders, follows: Vec<CancellationToken>) -> anyhow::Result<()> {
        let _done = orders.done.drop_guard();
        for other in follows {
            other.cancelled().await;
        }
        let Shared { clock, metrics, .. } = self.shared;
        let mut sink = FileSink::new(self.options.options, self.feed, clock, self.health, metrics);
        sink.run(orders.stop).await;
        if orders.clear.is_cancelled() {
            sink.clear().await;
        }
        Ok(())
    }
}

/// A listener that is bound and answers nobody yet.
#[derive(Debug)]
pub(super) struct BoundListener {
    pub(super) options: config::Listener,
    pub(super) socket: Listener,
    sources: BTreeMap<String, Source>,
    health: Reporter,
    shared: Shared,
}

impl BoundListener {
    /// Binds, or takes a running listener's socket over.
    ///
    /// # Errors
    /// The address cannot be bound, or the socket file's owner cannot be set.
    pub(super) fn bind(
        options: config::Listener,
        sources: BTreeMap<String, Source>,
        running: Option<&Listener>,
        inherited: &Inherited,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let socket = match running {
            Some(socket) => socket.try_clone(),
            None => Listener::open(&options.endpoint, inherited),
        };
        let socket =
            socket.with_context(|| format!("listener {} cannot listen on {}", options.name, options.endpoint))?;
        let health = shared.health.component(format!("listener/{}", options.name), options.required, "not serving yet");
        Ok(Self { options, socket, sources, health, shared: shared.clone() })
    }

    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    /// Serves until `stop`, then lets requests in flight end within `drain`.
    pub(super) async fn serve(self, drain: Duration, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { options, socket, sources, health, shared } = self;
        let observed = Observed { metrics: shared.metrics.clone(), listener: options.name.clone() };
        let limits = Limits { drain, observed: Some(observed), ..Limits::default() };
        let served = local_api::Options { name: options.name, serves: options.serves, sessions: sources };
        let parts = local_api::Parts {
            clock: shared.clock,
            metrics: shared.metrics,
            health: shared.health,
            board: shared.board,
            guard: options.guard,
            address: socket.tcp_address(),
            stop: stop.clone(),
        };
        health.ready();
        socket.serve(local_api::service(served, parts), limits, stop).await;
        Ok(())
    }
}
