//! Derived tokens of one output, connected to the session that they derive from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::secrets::{CreationLimit, DerivedTokenDeps, DerivedTokenKind, DerivedTokenManager};
use keyward_agent::server_client::ServerClient;
use keyward_agent::token::SessionHandle;
use keyward_agent::token::TokenWatch;
use keyward_config as config;
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_machine::tasks::resume_panic;
use keyward_telemetry::health::HealthHandle;
use tokio_util::sync::CancellationToken;

use super::session::{PlanContext, Shared};

/// Builds the manager of an output's derived token, and the handle by which the output reads that token.
pub(super) fn build_manager(
    output: String,
    creation_limit: Option<CreationLimit>,
    derive: DerivedTokenKind,
    session: &config::Session,
    source: &SessionHandle,
    health: Option<HealthHandle>,
    shared: &Shared,
) -> anyhow::Result<(DerivedTokenManager, SessionHandle)> {
    let (publisher, watch) = credential_channel("the derived token has not been created yet");
    // A caller that waits for a derived token also waits for the session's token.
    let refresh_signal = RefreshSignal::with_demand(shared.clock.clone(), source.refresh_signal.demand().clone());
    let parts = DerivedTokenDeps {
        publisher,
        upstream: ServerClient::build(&session.upstream).with_context(|| output.clone())?.with_metrics(&shared.metrics),
        namespace: session.login.namespace.clone(),
        tokens: source.watch.clone(),
        session: source.refresh_signal.clone(),
        refresh_signal: refresh_signal.clone(),
        health,
        creation_limit: creation_limit.map(Arc::new),
        clock: shared.clock.clone(),
    };
    Ok((DerivedTokenManager::new(output, derive, parts), SessionHandle { watch, refresh_signal }))
}

/// The derived tokens that one listener serves instead of its sessions' tokens.
#[derive(Debug, Default)]
pub(super) struct DerivedTokens {
    managers: Vec<DerivedTokenManager>,
    /// A session's token and its child.
    pairs: Vec<(TokenWatch, TokenWatch)>,
}

impl DerivedTokens {
    /// Builds the derived tokens of a listener, and the handles of these sessions with each token replaced by the derived one. The
    /// handles are the sessions' own if the listener has no `derived_token`.
    pub(super) fn build(
        listener: &config::Listener,
        sessions: &[String],
        context: &PlanContext<'_>,
    ) -> anyhow::Result<(Self, BTreeMap<String, SessionHandle>)> {
        let shared = context.shared;
        let mut derived_tokens = Self::default();
        let mut handles = BTreeMap::new();
        for name in sessions {
            let (session, source) = context.session(name)?;
            let mut handle = source.clone();
            if let Some(child) = listener.derived_token.as_ref().filter(|_| listener.serves_token_of(name)) {
                let component = format!("derived_token/{}/{name}", listener.name);
                let reason = "the derived token has not been created yet";
                let health = shared.health.register(component, listener.required, reason);
                let output = format!("listener {}", listener.name);
                let derive = DerivedTokenKind::Child(child.clone());
                let (manager, derived_handle) =
                    build_manager(output, None, derive, session, source, Some(health), shared)?;
                derived_tokens.managers.push(manager);
                derived_tokens.pairs.push((source.watch.clone(), derived_handle.watch.clone()));
                handle = derived_handle;
            }
            handles.insert(name.clone(), handle);
        }
        Ok((derived_tokens, handles))
    }

    /// Makes the listener also wait for the first value of other derived tokens; `pairs` are the session's token and the
    /// derived one.
    pub(super) fn wait_for(&mut self, pairs: Vec<(TokenWatch, TokenWatch)>) {
        self.pairs.extend(pairs);
    }

    /// Runs the token managers while `serving` runs. Serving starts once each available parent has a child, so that a
    /// reload makes callers wait instead of refusing them.
    pub(super) async fn run_beside(self, serving: impl Future<Output = ()>, stop: &CancellationToken) {
        let ended = CancellationToken::new();
        let mut managers = tokio::task::JoinSet::new();
        let pairs = self.pairs;
        for manager in self.managers {
            managers.spawn(manager.run(ended.clone()));
        }
        tokio::select! {
            () = wait_for_first_tokens(pairs) => {}
            () = tokio::time::sleep(FIRST_TOKEN_TIMEOUT) => {}
            () = stop.cancelled() => {}
        }
        // A manager also ends with its session.
        let panicked = async {
            while let Some(result) = managers.join_next().await {
                resume_panic(result);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => {}
            () = panicked => {}
        }
        ended.cancel();
        while managers.join_next().await.is_some() {}
    }
}

async fn wait_for_first_tokens(pairs: Vec<(TokenWatch, TokenWatch)>) {
    let serves = |watch: &TokenWatch| watch.read(|reading| matches!(reading.availability, Availability::Available(_)));
    for (session, mut child) in pairs {
        while serves(&session) && !serves(&child) && child.changed().await.is_ok() {
            child.current();
        }
    }
}

/// Time that callers of a new listener wait for the first derived token.
const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
