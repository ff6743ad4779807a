//! Derived tokens of outputs, connected to the session that they derive from.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::secrets::{
    CreationLimit, DerivedTokenDeps, DerivedTokenKind, DerivedTokenManager, DerivedTokenOptions,
};
use keyward_agent::server_client::ServerClient;
use keyward_agent::token::SessionHandle;
use keyward_agent::token::TokenWatch;
use keyward_config as config;
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_telemetry::health::HealthHandle;
use tokio_util::sync::CancellationToken;

use super::reconciler::{Group, Plan};
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

/// Derived tokens that listeners serve in place of their sessions' tokens, each with its options and true if readiness depends on it.
/// They outlive a listener of which something else changes.
pub(super) type ListenerTokens = Group<(DerivedTokenOptions, bool), SessionHandle>;

/// Change of the listeners' tokens by a new configuration. Dropping it changes nothing.
pub(super) type ListenerTokensPlan = Plan<(DerivedTokenOptions, bool), SessionHandle>;

/// Plans the tokens of a listener that uses these sessions. Returns the handles by which it reads them: of a derived token if the
/// listener has `derived_token`, and of the session otherwise.
pub(super) fn plan(
    running: &ListenerTokens,
    plan: &mut ListenerTokensPlan,
    listener: &config::Listener,
    sessions: &[String],
    context: &PlanContext<'_>,
) -> anyhow::Result<BTreeMap<String, SessionHandle>> {
    let mut handles = BTreeMap::new();
    for name in sessions {
        let (session, source) = context.session(name)?;
        let handle = match &listener.derived_token {
            Some(child) if listener.serves_token_of(name) => {
                let claim = running.claim(format!("{} for session {name}", listener.name), slice::from_ref(name));
                running.plan(plan, claim, (child.clone(), listener.required), |claim| {
                    let component = format!("derived_token/{}/{name}", listener.name);
                    let reason = "the derived token has not been created yet";
                    let health = context.shared.health.register(component, listener.required, reason);
                    let output = format!("listener {}", listener.name);
                    let derive = DerivedTokenKind::Child(child.clone());
                    let (manager, handle) =
                        build_manager(output, None, derive, session, source, Some(health), context.shared)?;
                    Ok((handle, Box::pin(manager.run(claim.stop.clone()))))
                })?
            }
            _ => source,
        };
        handles.insert(name.clone(), handle.clone());
    }
    Ok(handles)
}

/// Waits until each session that has a token has a derived one, so that a reload makes callers wait instead of refusing them. Ends at
/// `stop`, or after 5 s. `pairs` are a session's token and the derived one.
pub(super) async fn wait_for_first_tokens(pairs: Vec<(TokenWatch, TokenWatch)>, stop: CancellationToken) {
    let serves = |watch: &TokenWatch| watch.read(|reading| matches!(reading.availability, Availability::Available(_)));
    let all = async {
        for (session, mut child) in pairs {
            while serves(&session) && !serves(&child) && child.changed().await.is_ok() {
                child.current();
            }
        }
    };
    let _ = tokio::time::timeout(FIRST_TOKEN_TIMEOUT, stop.run_until_cancelled(all)).await;
}

/// Time that callers of a new listener wait for the first derived token.
const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
