//! Reloads: a plan builds and binds everything new, then a commit stops the old and starts the new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keyward_agent::process::ProcessOptions;
use keyward_config::{self as config, Config};
use keyward_http::server::ActivatedSockets;
use keyward_machine::tasks::TaskError;

use super::caller_tokens::{self, CallerTokensPlan, RunningCallerTokens};
use super::certificates::{self, Certificates, CertificatesPlan};
use super::child_process::{self, ChildHandle, ChildProcesses};
use super::derived_tokens::{self, ListenerTokens, ListenerTokensPlan};
#[cfg(feature = "gateway")]
use super::gateway::{self, GatewayPlan, Gateways};
use super::identities::{self, Identities, IdentitiesPlan};
use super::listeners::{self, Listeners, ListenersPlan};
use super::reconciler::{Group, Plan};
use super::session::{self, PlanContext, SessionEnd, Sessions, SessionsPlan, Shared};
use super::sinks::{self, STOP_LIMIT, Sinks, SinksPlan};
use super::templates::{self, Registries, Templates, TemplatesPlan};

/// The running sessions, and the parts that use their tokens.
pub(super) struct RunningAgent {
    sessions: Sessions,
    sinks: Sinks,
    #[cfg(feature = "gateway")]
    gateways: Gateways,
    registries: Registries,
    templates: Templates,
    certificates: Certificates,
    pub(super) children: ChildProcesses,
    pub(super) caller_tokens: RunningCallerTokens,
    listener_tokens: ListenerTokens,
    identities: Identities,
    listeners: Listeners,
}

/// Change by a new configuration: built and bound, with nothing started yet. Dropping it changes nothing.
pub(super) struct ReloadPlan {
    sessions: SessionsPlan,
    sinks: SinksPlan,
    #[cfg(feature = "gateway")]
    pub(super) gateway: GatewayPlan,
    templates: TemplatesPlan,
    certificates: CertificatesPlan,
    child: Plan<ProcessOptions, ChildHandle>,
    caller_tokens: CallerTokensPlan,
    listener_tokens: ListenerTokensPlan,
    identities: IdentitiesPlan,
    pub(super) listeners: ListenersPlan,
}

impl Default for RunningAgent {
    /// Nothing runs. Each group says how long a part waits for another one of its name to release what both use.
    fn default() -> Self {
        Self {
            // The state file.
            sessions: Group::new("session ", Duration::MAX),
            // Metrics, which the old one removes at its end. With a file elsewhere it must not hold up the new one.
            sinks: Group::new("sink ", STOP_LIMIT),
            // Nothing: it serves the same sockets.
            #[cfg(feature = "gateway")]
            gateways: Group::new("", Duration::ZERO),
            // The session's file of secrets.
            registries: Group::new("secrets of session ", Duration::MAX),
            templates: Group::new("", STOP_LIMIT),
            certificates: Group::new("", STOP_LIMIT),
            children: Group::new("", Duration::MAX),
            caller_tokens: Group::new("tokens of caller ", Duration::ZERO),
            listener_tokens: Group::new("derived tokens of listener ", Duration::ZERO),
            identities: Group::new("identity ", Duration::ZERO),
            // The saved cache.
            listeners: Group::new("listener ", listeners::WRITE_TIMEOUT),
        }
    }
}

impl RunningAgent {
    /// Builds and binds the parts of `new` that do not run already.
    ///
    /// # Errors
    /// A file cannot be used, or an address cannot be bound. Nothing has changed then.
    pub(super) fn plan(
        &self,
        new: &Config,
        inherited: &ActivatedSockets,
        shared: &Shared,
    ) -> anyhow::Result<ReloadPlan> {
        // In the order in which they use each other.
        let sessions = session::plan(&self.sessions, &new.sessions, shared)?;
        let identities = identities::plan(&self.identities, new, shared)?;
        let source = |name: &String| Some((name.clone(), self.sessions.planned(&sessions, name)?.source.clone()));
        let context = PlanContext {
            config: new,
            sources: new.sessions.iter().filter_map(|session| source(&session.name)).collect(),
            identities: identities::planned(&self.identities, &identities, new),
            rebuilt: sessions
                .built
                .iter()
                .map(|session| session.claim.name.clone())
                .chain(identities.built.iter().map(|identity| identities::part_name(&identity.claim.name)))
                .collect(),
            inherited,
            shared,
        };
        let sinks = sinks::plan(&self.sinks, &context)?;
        #[cfg(feature = "gateway")]
        let gateway = gateway::plan(&self.gateways, &context)?;
        #[cfg(feature = "gateway")]
        let gateway_inputs = gateway::for_child(&self.gateways, &gateway).into_iter().collect();
        #[cfg(not(feature = "gateway"))]
        let gateway_inputs = Vec::new();
        let mut templates = templates::plan(&self.templates, &self.registries, gateway_inputs, &context)?;
        let TemplatesPlan { registries, inputs, .. } = &mut templates;
        let certificates = certificates::plan(&self.certificates, &self.registries, registries, inputs, &context)?;
        let child = child_process::plan(&self.children, &templates.inputs, &context)?;
        let caller_tokens = caller_tokens::plan(&self.caller_tokens, &context)?;
        let mut listener_tokens = context.plan();
        let tokens = |listener: &config::Listener, sessions: &[String]| {
            derived_tokens::plan(&self.listener_tokens, &mut listener_tokens, listener, sessions, &context)
        };
        let listeners = listeners::plan(&self.listeners, tokens, &templates.credentials, &caller_tokens, &context)?;
        Ok(ReloadPlan {
            sessions,
            sinks,
            #[cfg(feature = "gateway")]
            gateway,
            templates,
            certificates,
            child,
            caller_tokens,
            listener_tokens,
            identities,
            listeners,
        })
    }

    /// Stops removed and replaced parts, and starts those that the plan built.
    pub(super) fn commit(&mut self, plan: ReloadPlan, config: &Config, shared: &Shared) {
        let ReloadPlan { mut sessions, sinks, templates, certificates, child, .. } = plan;
        let ReloadPlan { caller_tokens, listener_tokens, listeners, .. } = plan;
        self.identities.commit(plan.identities);
        #[cfg(feature = "gateway")]
        gateway::commit(&mut self.gateways, plan.gateway, shared);
        listeners::stop(&mut self.listeners, &listeners);
        let draining = |session: &str| self.listeners.stopped_of(session).map(|part| part.ended.clone()).collect();
        let ending = self.sessions.take_ended(&sessions);
        let heirs = sessions.built.iter_mut();
        let mut heirs: BTreeMap<_, _> =
            heirs.filter_map(|next| Some((next.claim.name.clone(), next.handle.heir.take()?))).collect();
        let revoked = ending.iter().filter(|session| session.handle.revokes_on_exit());
        let revoked: BTreeSet<_> =
            revoked.map(|session| &*session.claim.name).filter(|name| !heirs.contains_key(*name)).collect();
        sinks::stop(&mut self.sinks, &sinks, |session| revoked.contains(session));
        for session in ending {
            // A token is revoked once no file holds it any more, and no request in flight uses it.
            let name = &session.claim.name;
            let sinks = self.sinks.stopped_of(name).cloned().collect();
            let end = SessionEnd { heir: heirs.remove(name), listeners: draining(name) };
            // Fails if it has ended by itself.
            let _ = session.handle.end.send(end);
            self.sessions.stop_after(session.claim, sinks::wait_for_files(sinks));
        }
        for options in &config.sessions {
            if let Some(session) = self.sessions.running.get(&options.name) {
                session.handle.apply(options);
            }
        }
        self.sessions.start(sessions);
        self.sinks.start(sinks);
        self.registries.commit(templates.registries);
        self.templates.commit(templates.templates);
        self.certificates.commit(certificates);
        child_process::commit(&mut self.children, child, &templates.inputs);
        for (component, required) in caller_tokens.required {
            shared.health.set_required(&component, required);
        }
        self.caller_tokens.commit_after(caller_tokens.parts, draining);
        self.listener_tokens.commit_after(listener_tokens, draining);
        self.listeners.start(listeners);
    }

    /// Waits for the exit code of a child process that ended for good, or for the first failure of a task.
    pub(super) async fn wait_for_end(&mut self) -> Result<u8, TaskError> {
        #[cfg(feature = "gateway")]
        let gateways = self.gateways.tasks.wait_for_failure();
        #[cfg(not(feature = "gateway"))]
        let gateways = std::future::pending();
        let children = child_process::wait_for_end(&mut self.children);
        tokio::select! {
            failure = self.sessions.tasks.wait_for_failure() => Err(failure),
            failure = self.sinks.tasks.wait_for_failure() => Err(failure),
            failure = gateways => Err(failure),
            failure = self.registries.tasks.wait_for_failure() => Err(failure),
            failure = self.templates.tasks.wait_for_failure() => Err(failure),
            failure = self.certificates.tasks.wait_for_failure() => Err(failure),
            failure = self.caller_tokens.tasks.wait_for_failure() => Err(failure),
            failure = self.listener_tokens.tasks.wait_for_failure() => Err(failure),
            failure = self.identities.tasks.wait_for_failure() => Err(failure),
            failure = self.listeners.tasks.wait_for_failure() => Err(failure),
            ended = children => ended,
        }
    }

    /// Stops all: listeners drain, then sinks and templates release their files, then sessions end and revoke if configured.
    pub(super) async fn stop(self, drain: Duration) -> Result<(), TaskError> {
        let drain = drain + Duration::from_secs(1);
        // From here on no client can connect: the last copies of the sockets are dropped with the groups.
        #[cfg(feature = "gateway")]
        let (listeners, gateways) = tokio::join!(self.listeners.end(drain), self.gateways.end(drain));
        #[cfg(not(feature = "gateway"))]
        let (listeners, gateways) = (self.listeners.end(drain).await, Ok(()));
        for sink in self.sinks.running.values() {
            let session = sink.options.0.session().and_then(|session| self.sessions.running.get(session));
            if session.is_some_and(|session| session.handle.revokes_on_exit()) {
                sink.handle.cancel();
            }
        }
        let (sinks, caller_tokens, listener_tokens, identities) = tokio::join!(
            self.sinks.end(STOP_LIMIT),
            self.caller_tokens.end(caller_tokens::STOP_TIMEOUT),
            self.listener_tokens.end(STOP_LIMIT),
            self.identities.end(STOP_LIMIT)
        );
        let (templates, certificates, registries, children) = tokio::join!(
            self.templates.end(STOP_LIMIT),
            self.certificates.end(STOP_LIMIT),
            self.registries.end(STOP_LIMIT),
            self.children.end(STOP_LIMIT)
        );
        let sessions = self.sessions.end(SESSION_STOP_TIMEOUT).await;
        let tokens = [sinks, caller_tokens, listener_tokens, identities];
        let outputs = [templates, certificates, registries, children];
        [listeners, gateways].into_iter().chain(tokens).chain(outputs).chain([sessions]).collect()
    }
}

/// Time for a session to write its state and, if configured, to revoke its token.
const SESSION_STOP_TIMEOUT: Duration = Duration::from_secs(8);
