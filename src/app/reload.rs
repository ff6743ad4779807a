//! Reloads: a plan builds and binds everything new, then a commit stops the old and starts the new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keyward_agent::token::SessionHandle;
use keyward_config as config;
use keyward_config::Config;
#[cfg(feature = "gateway")]
use keyward_http::server::Endpoint;
use keyward_http::server::{ActivatedSockets, Listener};
use keyward_machine::tasks::{TaskError, TaskGroup};
use tokio_util::sync::CancellationToken;

use super::caller_tokens::{CallerTokensPlan, RunningCallerTokens};
use super::error_codes;
#[cfg(feature = "gateway")]
use super::gateway::{GatewayPlan, RunningGateway};
use super::outputs::{BoundListener, BuiltSink, CacheControl, ListenerInputs, SinkControl, public_key_fingerprint};
use super::session::{
    FileFingerprint, Predecessor, RunningSession, Session, SessionControl, SessionInputs, SessionRefs, Shared,
};
use super::stopping::{DrainingListeners, STOP_LIMIT, StoppingOutput, StoppingOutputs};
use super::systemd_credentials::CredentialInputs;
use super::templates::{RunningTemplates, TemplatesPlan};

/// The running sessions, and the outputs that use their tokens.
#[derive(Debug, Default)]
pub(super) struct RunningAgent {
    pub(super) sessions: RunningGroup<RunningSession>,
    pub(super) sinks: RunningGroup<RunningSink>,
    /// The gateway's task is among these: it stops when they do.
    pub(super) listeners: RunningGroup<RunningListener>,
    draining: DrainingListeners,
    stopping_sinks: StoppingOutputs,
    #[cfg(feature = "gateway")]
    gateway: RunningGateway,
    pub(super) templates: RunningTemplates,
    pub(super) caller_tokens: RunningCallerTokens,
}

/// Tasks that stop together, each with the options that it was built from.
#[derive(Debug)]
pub(super) struct RunningGroup<R> {
    running: BTreeMap<String, R>,
    pub(super) tasks: TaskGroup,
}

impl<R> Default for RunningGroup<R> {
    fn default() -> Self {
        Self { running: BTreeMap::new(), tasks: TaskGroup::default() }
    }
}

#[derive(Debug)]
pub(super) struct RunningSink {
    options: config::Sink,
    public_key: Option<FileFingerprint>,
    control: SinkControl,
}

#[derive(Debug)]
pub(super) struct RunningListener {
    options: config::Listener,
    socket: Listener,
    stop: CancellationToken,
    /// Its cache, which a listener that replaces it takes over.
    cache: CacheControl,
    /// Cancelled once it has drained.
    done: CancellationToken,
}

/// Change by a new configuration: built and bound, with nothing started yet. Dropping it changes nothing.
#[derive(Debug)]
pub(super) struct ReloadPlan {
    sessions: Vec<Session>,
    /// Sessions that continue to run, perhaps with other lifecycle options.
    following: Vec<SessionInputs>,
    sinks: Vec<BuiltSink>,
    pub(super) listeners: Vec<BoundListener>,
    #[cfg(feature = "gateway")]
    pub(super) gateway: GatewayPlan,
    templates: TemplatesPlan,
    caller_tokens: CallerTokensPlan,
}

/// Sessions of a [`ReloadPlan`], and the handles of all sessions that will run, by name.
#[derive(Debug, Default)]
struct PlannedSessions {
    sessions: Vec<Session>,
    following: Vec<SessionInputs>,
    sources: BTreeMap<String, SessionHandle>,
}

impl ReloadPlan {
    /// Addresses of the gateway that will start; empty if none will.
    #[cfg(feature = "gateway")]
    pub(super) fn gateway_endpoints(&self) -> Vec<Endpoint> {
        self.gateway.endpoints()
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
        let PlannedSessions { sessions, following, sources } = self.plan_sessions(&new.sessions, shared)?;
        let joined = SessionRefs { options: &new.sessions, sources: &sources };
        let rebuilt = |name: &String| sessions.iter().any(|session| session.name() == name);
        let sinks = self.plan_sinks(&new.sinks, joined, rebuilt, shared)?;
        #[cfg(feature = "gateway")]
        let gateway = self.gateway.plan(new.gateway.as_ref(), inherited, joined, rebuilt, shared)?;
        #[cfg(feature = "gateway")]
        let gateway_inputs = self.gateway.for_child(&gateway).into_iter().collect();
        #[cfg(not(feature = "gateway"))]
        let gateway_inputs = Vec::new();
        let templates = self.templates.plan(new, joined, rebuilt, gateway_inputs, shared)?;
        let caller_tokens = self.caller_tokens.plan(new, joined, rebuilt, shared)?;
        let credentials = &templates.credentials;
        let listeners =
            self.plan_listeners(&new.listeners, credentials, &caller_tokens, joined, rebuilt, inherited, shared)?;
        Ok(ReloadPlan {
            sessions,
            following,
            sinks,
            listeners,
            #[cfg(feature = "gateway")]
            gateway,
            templates,
            caller_tokens,
        })
    }

    fn plan_sessions(&self, new: &[config::Session], shared: &Shared) -> anyhow::Result<PlannedSessions> {
        let mut planned = PlannedSessions::default();
        for options in new {
            let inputs = SessionInputs::new(options);
            let source = match self.sessions.running.get(&options.name) {
                Some(running) if running.inputs.differs_in_lifecycle_alone(&inputs) => {
                    planned.following.push(inputs);
                    running.source.clone()
                }
                running => {
                    let session = Session::build(inputs, running, shared)?;
                    let source = session.source.clone();
                    planned.sessions.push(session);
                    source
                }
            };
            planned.sources.insert(options.name.clone(), source);
        }
        Ok(planned)
    }

    fn plan_sinks(
        &self,
        new: &[config::Sink],
        sessions: SessionRefs<'_>,
        rebuilt: impl Fn(&String) -> bool,
        shared: &Shared,
    ) -> anyhow::Result<Vec<BuiltSink>> {
        let mut sinks = Vec::new();
        for options in new {
            let public_key = public_key_fingerprint(options);
            let has_same_inputs =
                |running: &RunningSink| running.options == *options && running.public_key == public_key;
            let is_unchanged = self.sinks.running.get(&options.options.name).is_some_and(has_same_inputs);
            if let Some(source) = sessions.sources.get(&options.session)
                && (!is_unchanged || rebuilt(&options.session))
            {
                let session = sessions.options.iter().find(|session| session.name == options.session);
                sinks.push(BuiltSink::build(options.clone(), source, session, shared)?);
            }
        }
        Ok(sinks)
    }

    fn plan_listeners(
        &self,
        new: &[config::Listener],
        credentials: &CredentialInputs,
        caller_tokens: &CallerTokensPlan,
        sessions: SessionRefs<'_>,
        rebuilt: impl Fn(&String) -> bool,
        inherited: &ActivatedSockets,
        shared: &Shared,
    ) -> anyhow::Result<Vec<BoundListener>> {
        let mut listeners = Vec::new();
        for options in new {
            let running = self.listeners.running.get(&options.name);
            let is_unchanged = running.is_some_and(|running| running.options == *options);
            // Probes and pages use no token of a session: their connections outlive one.
            let used_sessions: &[String] = if options.serves.uses_tokens() { &options.sessions } else { &[] };
            if is_unchanged && !used_sessions.iter().any(&rebuilt) {
                continue;
            }
            // By address, whatever the name.
            let socket = self.listeners.running.values().find(|running| running.options.endpoint == options.endpoint);
            let served =
                used_sessions.iter().filter_map(|name| Some((name.clone(), sessions.sources.get(name)?.clone())));
            let inputs =
                ListenerInputs { sources: served.collect(), sessions: sessions.options, credentials, caller_tokens };
            let socket = socket.map(|running| &running.socket);
            let bound = BoundListener::bind(options.clone(), inputs, socket, inherited, shared);
            let running = self.listeners.running.iter();
            let running = running.filter_map(|(name, running)| Some((name, running.socket.tcp_address()?)));
            listeners.push(bound.map_err(|error| error_codes::name_port_holder(error, running))?);
        }
        Ok(listeners)
    }

    /// Stops removed and replaced tasks, and starts those that the plan built.
    pub(super) fn commit(&mut self, plan: ReloadPlan, config: &Config) {
        #[cfg(feature = "gateway")]
        self.gateway.commit(plan.gateway, &mut self.listeners.tasks, config.agent.stop_grace);
        let mut writing = self.stop_listeners(&plan.listeners, config);
        let replaced = |name: &String| plan.sessions.iter().any(|session| session.name() == name);
        let is_unchanged =
            |name: &String| config.sessions.iter().any(|session| session.name == *name) && !replaced(name);
        let ending: BTreeMap<String, RunningSession> = self.sessions.take_except(is_unchanged).collect();

        let replaced = |name: &String| plan.sinks.iter().any(|sink| sink.name() == name);
        let is_unchanged =
            |name: &String| config.sinks.iter().any(|sink| sink.options.name == *name) && !replaced(name);
        let successors: BTreeSet<&str> =
            plan.sessions.iter().filter(|session| session.inherits).map(Session::name).collect();
        for (name, sink) in self.sinks.take_except(is_unchanged) {
            let session = &*sink.options.session;
            let revoked = !successors.contains(session)
                && ending.get(session).is_some_and(|running| running.inputs.options.lifecycle.revoke_on_exit);
            let session = session.to_owned();
            let file = Some(sink.options.options.path.clone());
            self.stopping_sinks.add(StoppingOutput { name, session, file, done: sink.stop(revoked) });
        }
        let predecessor = |(name, session): (&String, &RunningSession)| {
            let token = successors.contains(&**name).then(|| session.control.hand_over());
            (name.clone(), Predecessor { ended: session.control.ended.clone(), token })
        };
        let mut predecessors: BTreeMap<String, Predecessor> = ending.iter().map(predecessor).collect();
        for (name, session) in ending {
            // A token is revoked once no file holds it any more, and no request in flight uses it.
            session.control.revoke_after(self.draining.of_session(&name));
            let sinks = self.stopping_sinks.of_session(&name);
            self.sessions.tasks.start(format!("end of session {name}"), async move {
                sinks.wait_for_sinks().await;
                session.control.stop.cancel();
                Ok(())
            });
        }
        for inputs in plan.following {
            if let Some(running) = self.sessions.running.get_mut(&inputs.options.name) {
                running.lifecycle.send_replace(inputs.options.lifecycle.clone());
                // A file or role may have been corrected: failing sessions retry at once, others ignore this.
                drop(running.source.refresh_signal.demand().retry());
                running.inputs = inputs;
            }
        }
        for session in plan.sessions {
            let predecessor = predecessors.remove(session.name());
            self.start_session(session, predecessor);
        }
        for sink in plan.sinks {
            self.start_sink(sink);
        }
        self.templates.commit(plan.templates, config);
        self.caller_tokens.commit(plan.caller_tokens, &self.draining);
        for listener in plan.listeners {
            let follows = writing.remove(listener.name());
            self.start_listener(listener, config.agent.stop_grace, follows);
        }
    }

    /// Stops removed and replaced listeners. Returns a token for each, by its name, that is cancelled once its cache is saved.
    fn stop_listeners(&mut self, next: &[BoundListener], config: &Config) -> BTreeMap<String, CancellationToken> {
        let is_unchanged = |name: &String| {
            config.listeners.iter().any(|listener| listener.name == *name)
                && !next.iter().any(|next| next.name() == name)
        };
        let mut writing = BTreeMap::new();
        for (name, listener) in self.listeners.take_except(is_unchanged) {
            if next.iter().any(|next| next.options.endpoint == listener.options.endpoint) {
                listener.socket.hand_over();
            }
            let saved = listener.cache.hand_over(next.iter().find(|next| next.name() == name));
            listener.stop.cancel();
            self.draining.add(&listener.options, listener.done);
            writing.insert(name, saved);
        }
        writing
    }

    fn start_session(&mut self, session: Session, predecessor: Option<Predecessor>) {
        let stop = self.sessions.tasks.stop_token().child_token();
        let control = SessionControl { stop, ..SessionControl::default() };
        let name = session.name().to_owned();
        let running = session.to_running(control.clone());
        self.sessions.tasks.start(format!("session {name}"), session.run(control, predecessor));
        self.sessions.running.insert(name, running);
    }

    fn start_sink(&mut self, sink: BuiltSink) {
        let follows = self.stopping_sinks.predecessors(sink.name(), Some(&sink.options.options.path));
        let stop = self.sinks.tasks.stop_token().child_token();
        let control = SinkControl { stop, ..SinkControl::default() };
        let name = sink.name().to_owned();
        let running =
            RunningSink { options: sink.options.clone(), public_key: sink.public_key, control: control.clone() };
        self.sinks.tasks.start(format!("sink {name}"), sink.run(control, follows));
        self.sinks.running.insert(name, running);
    }

    /// `follows` is cancelled once the previous listener has saved its cache.
    fn start_listener(&mut self, listener: BoundListener, drain: Duration, follows: Option<CancellationToken>) {
        let stop = self.listeners.tasks.stop_token().child_token();
        let name = listener.name().to_owned();
        let cache = listener.cache_control();
        let done = CancellationToken::new();
        let ended = done.clone().drop_guard();
        // A copy of the socket stays here, so that a reload can hand it over.
        if let Ok(socket) = listener.socket.try_clone() {
            let options = listener.options.clone();
            let running = RunningListener { options, socket, stop: stop.clone(), cache: cache.clone(), done };
            self.listeners.running.insert(name.clone(), running);
        }
        let serving = listener.serve(drain, stop, follows, cache);
        self.listeners.tasks.start(format!("listener {name}"), async move {
            let _ended = ended;
            serving.await
        });
    }

    /// Stops all: listeners drain, then sinks and templates release their files, then sessions end and revoke if configured.
    pub(super) async fn stop(self, drain: Duration) -> Result<(), TaskError> {
        let Self { sessions, sinks, listeners, templates, caller_tokens, .. } = self;
        let RunningGroup { running, tasks } = listeners;
        tasks.stop_token().cancel();
        let drained = tasks.run(drain + Duration::from_secs(1)).await;
        // The last copies of the sockets: from here on no client can connect.
        drop(running);
        let revoked = |sink: &RunningSink| {
            sessions
                .running
                .get(&sink.options.session)
                .is_some_and(|session| session.inputs.options.lifecycle.revoke_on_exit)
        };
        for sink in sinks.running.values() {
            let _ = sink.stop(revoked(sink));
        }
        let processes_ended = caller_tokens.stop().await;
        let emptied = sinks.tasks.run(STOP_LIMIT).await.and(templates.stop().await);
        sessions.tasks.stop_token().cancel();
        let ended = sessions.tasks.run(SESSION_STOP_TIMEOUT).await;
        drained.and(processes_ended).and(emptied).and(ended)
    }
}

/// Time for a session to write its state and, if configured, to revoke its token.
const SESSION_STOP_TIMEOUT: Duration = Duration::from_secs(8);

impl RunningSink {
    /// Stops the sink; it clears its file first if the token is `revoked`. Returns a token that is cancelled when it has ended.
    fn stop(&self, revoked: bool) -> CancellationToken {
        if revoked {
            self.control.clear.cancel();
        }
        self.control.stop.cancel();
        self.control.done.clone()
    }
}

impl<R> RunningGroup<R> {
    /// Removes the entries that are not kept, and returns them.
    fn take_except(&mut self, keep: impl Fn(&String) -> bool) -> impl Iterator<Item = (String, R)> {
        self.running.extract_if(.., move |name, _| !keep(name))
    }
}
