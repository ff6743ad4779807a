//! One chain identity -> login -> keeper -> feed, built from its options.

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::agent::lifecycle::{Parts, TokenKeeper};
use crate::agent::local_api::Source;
use crate::agent::login::Login;
use crate::agent::upstream::Upstream;
use crate::clock::Clock;
use crate::config;
use crate::feed::{Nudge, feed};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::status::Board;

/// What every part is handed.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
    pub(super) board: Board,
}

/// A session that is built and has not started: nothing has been sent.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) options: config::Session,
    pub(super) source: Source,
    keeper: TokenKeeper,
}

impl Session {
    /// Builds the chain.
    ///
    /// # Errors
    /// A file that the options name cannot be used.
    pub(super) fn build(options: config::Session, shared: &Shared) -> anyhow::Result<Self> {
        let named = || format!("session {}", options.name);
        let upstream = Upstream::build(&options.upstream).with_context(named)?;
        let identity = options.identity.build(shared.clock.clone()).with_context(named)?;
        let login = Login::new(upstream, options.login.clone());
        let (publisher, feed) = feed("no login has succeeded yet");
        let nudge = Nudge::new(shared.clock.clone());
        let parts = Parts {
            publisher,
            identity,
            login,
            nudge: nudge.clone(),
            clock: shared.clock.clone(),
            board: shared.board.clone(),
            health: shared.health.component(format!("session/{}", options.name), true, "no token yet"),
            metrics: shared.metrics.clone(),
        };
        let keeper = TokenKeeper::new(options.lifecycle.clone(), parts);
        Ok(Self { source: Source { feed, nudge }, keeper, options })
    }

    /// Keeps the token until `stop`, then revokes it if that was asked for. By then outputs have let go of it.
    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let farewell = self.keeper.run(stop).await;
        farewell.revoke().await;
        Ok(())
    }
}
