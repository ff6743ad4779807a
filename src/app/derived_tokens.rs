//! Tokens made of a session's for one output, joined to it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::session::Shared;
use crate::agent::local_api::SessionHandle;
use crate::agent::secrets::{DerivedTokenDeps, DerivedTokenKind, DerivedTokenManager};
use crate::agent::server_client::ServerClient;
use crate::agent::token::TokenWatch;
use crate::config;
use crate::credential_watch::{Availability, RefreshSignal, credential_channel};
use crate::health::HealthHandle;

/// What makes tokens of `session`'s for an output, and where they are read.
///
/// # Errors
/// The session's server cannot be called.
pub(super) fn keeper(
    output: String,
    derive: DerivedTokenKind,
    (session, source): (&config::Session, &SessionHandle),
    health: Option<HealthHandle>,
    shared: &Shared,
) -> anyhow::Result<(DerivedTokenManager, SessionHandle)> {
    let (publisher, made) = credential_channel("no token was made for it yet");
    // Who waits for what is made of the session's token waits for the session.
    let refresh_signal = RefreshSignal::with_demand(shared.clock.clone(), source.refresh_signal.demand().clone());
    let parts = DerivedTokenDeps {
        publisher,
        upstream: ServerClient::build(&session.upstream).with_context(|| output.clone())?,
        namespace: session.login.namespace.clone(),
        tokens: source.watch.clone(),
        session: source.refresh_signal.clone(),
        refresh_signal: refresh_signal.clone(),
        health,
        clock: shared.clock.clone(),
    };
    Ok((DerivedTokenManager::new(output, derive, parts), SessionHandle { watch: made, refresh_signal }))
}

/// The child tokens that one listener serves in place of its sessions' own.
#[derive(Debug, Default)]
pub(super) struct Children {
    keepers: Vec<DerivedTokenManager>,
    /// A session's token and its child.
    pairs: Vec<(TokenWatch, TokenWatch)>,
}

impl Children {
    /// What a listener's sessions are, once each has its child in place of its token, where the listener asks for that.
    ///
    /// # Errors
    /// A session's server cannot be called.
    pub(super) fn of(
        listener: &config::Listener,
        sources: BTreeMap<String, SessionHandle>,
        sessions: &[config::Session],
        shared: &Shared,
    ) -> anyhow::Result<(Self, BTreeMap<String, SessionHandle>)> {
        let mut children = Self::default();
        let Some(child) = &listener.derived_token else { return Ok((children, sources)) };
        let mut replaced = BTreeMap::new();
        for (name, source) in sources {
            let session = sessions.iter().find(|its| its.name == name).context("the listener has no such session")?;
            let component = format!("derived_token/{}/{name}", listener.name);
            let health = shared.health.register(component, listener.required, "no token was made for it yet");
            let output = format!("listener {}", listener.name);
            let derive = DerivedTokenKind::Child(child.clone());
            let (keeper, made) = keeper(output, derive, (session, &source), Some(health), shared)?;
            children.keepers.push(keeper);
            children.pairs.push((source.watch, made.watch.clone()));
            replaced.insert(name, made);
        }
        Ok((children, replaced))
    }

    /// Keeps the children while `serving` runs, which begins once there is a child of each token that is there: a reload
    /// that changes a listener keeps its callers waiting rather than refusing them.
    pub(super) async fn beside(self, serving: impl Future<Output = ()>, stop: &CancellationToken) {
        let ended = CancellationToken::new();
        let (mut keepers, pairs) = (tokio::task::JoinSet::new(), self.pairs);
        for keeper in self.keepers {
            keepers.spawn(keeper.run(ended.clone()));
        }
        tokio::select! {
            () = first(pairs) => {}
            () = tokio::time::sleep(FIRST_WITHIN) => {}
            () = stop.cancelled() => {}
        }
        serving.await;
        ended.cancel();
        while keepers.join_next().await.is_some() {}
    }
}

async fn first(pairs: Vec<(TokenWatch, TokenWatch)>) {
    let serves = |watch: &TokenWatch| watch.with(|reading| matches!(reading.availability, Availability::Available(_)));
    for (session, mut child) in pairs {
        while serves(&session) && !serves(&child) && child.changed().await.is_ok() {
            child.current();
        }
    }
}

/// How long callers of a listener that is begun wait for its first child.
const FIRST_WITHIN: Duration = Duration::from_secs(5);
