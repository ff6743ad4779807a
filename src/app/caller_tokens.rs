//! Caller tokens, connected to the sessions that they derive from. They outlive listeners: a reload that does not change a
//! caller keeps its tokens.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::caller_tokens::{self, CallerToken, CallerTokens, ProcessTokenDeps, ProcessTokens};
use keyward_agent::callers::{CallerPolicy, CallerRoute, CallerRule, CallerTokenOptions, CallerTokenScope};
use keyward_agent::secrets::{CreationLimit, DerivedTokenKind, DerivedTokenOptions};
use keyward_agent::server_client::ServerClient;
use keyward_agent::token::TokenWatch;
use keyward_config::{self as config, Config};

use super::derived_tokens;
use super::reconciler::{Claim, Group, Plan, Work};
use super::session::PlanContext;

/// Caller and session of a token.
type Key = (String, String);

/// The tokens of all callers that have one of their own.
pub(super) type RunningCallerTokens = Group<TokenOptions, caller_tokens::Source>;

/// Options that a token is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenOptions {
    options: CallerTokenOptions,
    /// Rule of the caller, where each process has a token: tokens of processes end with any change of it.
    process_rule: Option<CallerRule>,
}

/// Tokens of a new configuration. Dropping it changes nothing.
pub(super) struct CallerTokensPlan {
    pub(super) tokens: CallerTokens,
    /// Pairs of a session's token and the caller's shared token.
    pairs: BTreeMap<Key, (TokenWatch, TokenWatch)>,
    /// Components of shared tokens; true if a required listener serves one.
    pub(super) required: BTreeMap<String, bool>,
    pub(super) parts: Plan<TokenOptions, caller_tokens::Source>,
}

/// Plans the tokens.
pub(super) fn plan(running: &RunningCallerTokens, context: &PlanContext<'_>) -> anyhow::Result<CallerTokensPlan> {
    let mut parts = context.plan();
    let mut sources = BTreeMap::new();
    let mut pairs = BTreeMap::new();
    let mut required_components = BTreeMap::new();
    for (key, (options, required)) in list_required_tokens(context.config) {
        let (caller, session) = &key;
        let claim = running.claim(format!("{caller} for session {session}"), slice::from_ref(session));
        let build = |claim: &Claim| build(&key, &options, required, claim, context);
        let source = running.plan(&mut parts, claim, options.clone(), build)?.clone();
        if let caller_tokens::Source::Shared(token) = &source {
            let (_, parent) = context.session(session)?;
            pairs.insert(key.clone(), (parent.watch.clone(), token.handle.watch.clone()));
            required_components.insert(component(&key), required);
        }
        sources.insert(key, source);
    }
    Ok(CallerTokensPlan { tokens: CallerTokens::new(sources), pairs, required: required_components, parts })
}

impl CallerTokensPlan {
    /// Returns the pairs of the sessions that a listener serves.
    pub(super) fn pairs_for(&self, listener: &config::Listener) -> Vec<(TokenWatch, TokenWatch)> {
        let serves = |key: &Key| listener.callers.is_some() && listener.serves_token_of(&key.1);
        self.pairs.iter().filter(|(key, _)| serves(key)).map(|(_, pair)| pair.clone()).collect()
    }
}

/// Time to revoke the tokens of processes.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Lists the callers with `derived_token`, and for each the sessions whose token a listener would serve. True if a
/// required listener does.
fn list_required_tokens(config: &Config) -> BTreeMap<Key, (TokenOptions, bool)> {
    let mut required_tokens: BTreeMap<Key, (TokenOptions, bool)> = BTreeMap::new();
    let serves = |listener: &&config::Listener| listener.callers.is_some();
    for rule in config.callers.iter().flat_map(CallerPolicy::rules).filter(|rule| uses_token(rule)) {
        let Some(options) = &rule.grants.derived_token else { continue };
        for listener in config.listeners.iter().filter(serves) {
            let served = listener.sessions.iter();
            for session in served.filter(|name| listener.serves_token_of(name) && rule.grants.permits_session(name)) {
                let process_rule = (options.scope == CallerTokenScope::Process).then(|| rule.clone());
                let options = TokenOptions { options: options.clone(), process_rule };
                let entry = required_tokens.entry((rule.name.clone(), session.clone())).or_insert((options, false));
                entry.1 |= listener.required;
            }
        }
    }
    required_tokens
}

fn uses_token(rule: &CallerRule) -> bool {
    let uses =
        |route: &CallerRoute| !matches!(route, CallerRoute::Status | CallerRoute::Health | CallerRoute::Identity);
    rule.grants.routes.iter().any(uses)
}

/// Returns the name of a token's health component.
fn component((caller, session): &Key) -> String {
    format!("derived_token/caller/{caller}/{session}")
}

fn build(
    key: &Key,
    token: &TokenOptions,
    required: bool,
    claim: &Claim,
    context: &PlanContext<'_>,
) -> anyhow::Result<(caller_tokens::Source, Work)> {
    let shared = context.shared;
    let (caller, name) = key;
    let (session, source) = context.session(name)?;
    let output = format!("caller {caller}");
    let component = component(key);
    let mut options: DerivedTokenOptions = token.options.child.clone();
    options.meta.insert("session", name.clone());
    match token.options.scope {
        CallerTokenScope::Caller => {
            let health = shared.health.register(component, required, "the derived token has not been created yet");
            // Without `num_uses` the token's own schedule limits creations, as for a listener.
            let limit = (options.num_uses > 0).then(|| CreationLimit::new(shared.clock.now()));
            let kind = DerivedTokenKind::Child(options);
            let (manager, handle) =
                derived_tokens::build_manager(output, limit, kind, session, source, Some(health), shared)?;
            let token = caller_tokens::Source::Shared(CallerToken::new(handle));
            Ok((token, Box::pin(manager.run(claim.stop.clone()))))
        }
        CallerTokenScope::Process => {
            let upstream = ServerClient::build(&session.upstream).with_context(|| output)?;
            let tokens = ProcessTokens::new(ProcessTokenDeps {
                caller: caller.clone(),
                options,
                upstream: upstream.with_metrics(&shared.metrics),
                namespace: session.login.namespace.clone(),
                session: source.clone(),
                health: shared.health.register(component, false, "not started yet"),
                registry: shared.callers.clone(),
                metrics: shared.metrics.clone(),
                clock: shared.clock.clone(),
            });
            Ok((caller_tokens::Source::Process(tokens.clone()), Box::pin(tokens.run(claim.stop.clone()))))
        }
    }
}
