//! Caller tokens, connected to the sessions that they derive from. They outlive listeners: a reload that does not change a
//! caller keeps its tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::caller_tokens::{self, CallerToken, CallerTokens, ProcessTokenDeps, ProcessTokens};
use keyward_agent::callers::{CallerPolicy, CallerRoute, CallerRule, CallerTokenOptions, CallerTokenScope};
use keyward_agent::secrets::{CreationLimit, DerivedTokenKind, DerivedTokenManager, DerivedTokenOptions};
use keyward_agent::server_client::ServerClient;
use keyward_agent::token::{SessionHandle, TokenWatch};
use keyward_config::{self as config, Config};
use keyward_machine::tasks::{TaskError, TaskGroup};
use keyward_telemetry::health::Health;
use tokio_util::sync::CancellationToken;

use super::derived_tokens;
use super::session::{SessionRefs, Shared};
use super::stopping::{self, DrainingListeners};

/// Caller and session of a token.
type Key = (String, String);

/// Options that a token is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenInputs {
    options: CallerTokenOptions,
    /// Rule of the caller, where each process has a token: tokens of processes end with any change of it.
    process_rule: Option<CallerRule>,
}

/// The tokens of all callers that have one of their own.
#[derive(Debug, Default)]
pub(super) struct RunningCallerTokens {
    running: BTreeMap<Key, RunningToken>,
    pub(super) tasks: TaskGroup,
}

#[derive(Debug)]
struct RunningToken {
    inputs: TokenInputs,
    source: caller_tokens::Source,
    stop: CancellationToken,
}

/// A source whose task has not been started.
#[derive(Debug)]
struct BuiltToken {
    inputs: TokenInputs,
    source: caller_tokens::Source,
    /// Manager of a token that all processes of the caller share.
    manager: Option<DerivedTokenManager>,
}

/// Tokens of a new configuration. Dropping it changes nothing.
#[derive(Debug)]
pub(super) struct CallerTokensPlan {
    pub(super) tokens: CallerTokens,
    /// Pairs of a session's token and the caller's shared token.
    pub(super) pairs: BTreeMap<Key, (TokenWatch, TokenWatch)>,
    built: BTreeMap<Key, BuiltToken>,
    /// Tokens that continue to run; true if a required listener serves one.
    reused: BTreeMap<Key, bool>,
    health: Health,
}

impl RunningCallerTokens {
    /// Builds the tokens that do not run already.
    pub(super) fn plan(
        &self,
        new: &Config,
        sessions: SessionRefs<'_>,
        rebuilt: impl Fn(&String) -> bool,
        shared: &Shared,
    ) -> anyhow::Result<CallerTokensPlan> {
        let mut sources = BTreeMap::new();
        let mut pairs = BTreeMap::new();
        let mut built = BTreeMap::new();
        let mut reused = BTreeMap::new();
        for (key, (inputs, required)) in list_required_tokens(new) {
            let Some(session_handle) = sessions.sources.get(&key.1) else { continue };
            let running = self.running.get(&key).filter(|token| token.inputs == inputs && !rebuilt(&key.1));
            let source = if let Some(running) = running {
                reused.insert(key.clone(), required);
                running.source.clone()
            } else {
                let options = sessions
                    .options
                    .iter()
                    .find(|session| session.name == key.1)
                    .context("there is no such session")?;
                let token = build(&key, inputs, required, options, session_handle, shared)?;
                let source = token.source.clone();
                built.insert(key.clone(), token);
                source
            };
            if let caller_tokens::Source::Shared(token) = &source {
                pairs.insert(key.clone(), (session_handle.watch.clone(), token.handle.watch.clone()));
            }
            sources.insert(key, source);
        }
        let tokens = CallerTokens::new(sources);
        let health = shared.health.clone();
        Ok(CallerTokensPlan { tokens, pairs, built, reused, health })
    }

    /// Stops the tokens that are not in the plan, once no request in flight uses them, and starts those that it built.
    pub(super) fn commit(&mut self, plan: CallerTokensPlan, draining: &DrainingListeners) {
        let CallerTokensPlan { built, reused, health, .. } = plan;
        for (key, ended) in self.running.extract_if(.., |key, _| !reused.contains_key(key)) {
            let stop = ended.stop;
            let listeners = draining.of_session(&key.1);
            self.tasks.start(format!("end of the tokens of caller {} for session {}", key.0, key.1), async move {
                let _ = stop.run_until_cancelled(stopping::wait_for_all(listeners)).await;
                stop.cancel();
                Ok(())
            });
        }
        for (key, required) in reused {
            if self.running.get(&key).is_some_and(|token| matches!(token.source, caller_tokens::Source::Shared(_))) {
                health.set_required(&component(&key), required);
            }
        }
        for (key, BuiltToken { inputs, source, manager }) in built {
            let stop = self.tasks.stop_token().child_token();
            let name = format!("tokens of caller {} for session {}", key.0, key.1);
            match (&source, manager) {
                (caller_tokens::Source::Process(tokens), _) => {
                    let tokens = tokens.clone();
                    let stop = stop.clone();
                    self.tasks.start(name, async move {
                        tokens.run(stop).await;
                        Ok(())
                    });
                }
                (caller_tokens::Source::Shared(_), Some(manager)) => {
                    let stop = stop.clone();
                    self.tasks.start(name, async move {
                        manager.run(stop).await;
                        Ok(())
                    });
                }
                (caller_tokens::Source::Shared(_), None) => {}
            }
            self.running.insert(key, RunningToken { inputs, source, stop });
        }
    }

    /// Stops all; the tokens of processes are revoked.
    pub(super) async fn stop(self) -> Result<(), TaskError> {
        self.tasks.stop_token().cancel();
        self.tasks.run(STOP_TIMEOUT).await
    }
}

impl CallerTokensPlan {
    /// Returns the pairs of the sessions that a listener serves.
    pub(super) fn pairs_for(&self, listener: &config::Listener) -> Vec<(TokenWatch, TokenWatch)> {
        let serves = |key: &Key| listener.callers.is_some() && listener.serves_token_of(&key.1);
        self.pairs.iter().filter(|(key, _)| serves(key)).map(|(_, pair)| pair.clone()).collect()
    }
}

/// Time to revoke the tokens of processes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Lists the callers with `derived_token`, and for each the sessions whose token a listener would serve. True if a
/// required listener does.
fn list_required_tokens(config: &Config) -> BTreeMap<Key, (TokenInputs, bool)> {
    let mut required_tokens: BTreeMap<Key, (TokenInputs, bool)> = BTreeMap::new();
    let serves = |listener: &&config::Listener| listener.callers.is_some();
    for rule in config.callers.iter().flat_map(CallerPolicy::rules).filter(|rule| uses_token(rule)) {
        let Some(options) = &rule.grants.derived_token else { continue };
        for listener in config.listeners.iter().filter(serves) {
            let served = listener.sessions.iter();
            for session in served.filter(|name| listener.serves_token_of(name) && rule.grants.permits_session(name)) {
                let process_rule = (options.scope == CallerTokenScope::Process).then(|| rule.clone());
                let inputs = TokenInputs { options: options.clone(), process_rule };
                let entry = required_tokens.entry((rule.name.clone(), session.clone())).or_insert((inputs, false));
                entry.1 |= listener.required;
            }
        }
    }
    required_tokens
}

fn uses_token(rule: &CallerRule) -> bool {
    let uses = |route: &CallerRoute| !matches!(route, CallerRoute::Status | CallerRoute::Health);
    rule.grants.routes.iter().any(uses)
}

/// Returns the name of a token's health component.
fn component((caller, session): &Key) -> String {
    format!("derived_token/caller/{caller}/{session}")
}

fn build(
    key: &Key,
    inputs: TokenInputs,
    required: bool,
    session: &config::Session,
    source: &SessionHandle,
    shared: &Shared,
) -> anyhow::Result<BuiltToken> {
    let (caller, name) = key;
    let output = format!("caller {caller}");
    let component = component(key);
    let mut options: DerivedTokenOptions = inputs.options.child.clone();
    options.meta.insert("session", name.clone());
    match inputs.options.scope {
        CallerTokenScope::Caller => {
            let health = shared.health.register(component, required, "the derived token has not been created yet");
            // Without `num_uses` the token's own schedule limits creations, as for a listener.
            let limit = (options.num_uses > 0).then(|| CreationLimit::new(shared.clock.now()));
            let kind = DerivedTokenKind::Child(options);
            let (manager, handle) =
                derived_tokens::build_manager(output, limit, kind, session, source, Some(health), shared)?;
            let source = caller_tokens::Source::Shared(CallerToken::new(handle));
            Ok(BuiltToken { inputs, source, manager: Some(manager) })
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
            Ok(BuiltToken { inputs, source: caller_tokens::Source::Process(tokens), manager: None })
        }
    }
}
