//! What a configuration changes: built and bound as a whole, then put in force at once.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::outputs::{BoundListener, BuiltSink};
use super::session::{Session, Shared};
use crate::agent::local_api::Source;
use crate::config;
use crate::config::Config;
use crate::http::listen::{Inherited, Listener};
use crate::tasks::Tasks;

/// What runs of a configuration: sessions, and the outputs that drink from them.
#[derive(Debug, Default)]
pub(super) struct Agent {
    pub(super) sessions: Group<RunningSession>,
    pub(super) sinks: Group<Running<config::Sink>>,
    pub(super) listeners: Group<RunningListener>,
}

/// Tasks that stop together, and what each of them was built from.
#[derive(Debug)]
pub(super) struct Group<R> {
    running: BTreeMap<String, R>,
    pub(super) tasks: Tasks,
}

impl<R> Default for Group<R> {
    fn default() -> Self {
        Self { running: BTreeMap::new(), tasks: Tasks::default() }
    }
}

#[derive(Debug)]
pub(super) struct Running<O> {
    options: O,
    stop: CancellationToken,
}

#[derive(Debug)]
pub(super) struct RunningSession {
    options: config::Session,
    source: Source,
    stop: CancellationToken,
}

#[derive(Debug)]
pub(super) struct RunningListener {
    options: config::Listener,
    socket: Listener,
    stop: CancellationToken,
}

/// What a configuration changes: built and bound, with nothing started yet. Dropping it changes nothing.
#[derive(Debug)]
pub(super) struct Plan {
    sessions: Vec<Session>,
    sinks: Vec<BuiltSink>,
    listeners: Vec<BoundListener>,
}

impl Agent {
    /// Builds and binds what `new` asks for and does not run already.
    ///
    /// # Errors
    /// A file cannot be used, or an address cannot be bound. Nothing has changed then.
    pub(super) fn plan(&self, new: &Config, inherited: &Inherited, shared: &Shared) -> anyhow::Result<Plan> {
        let mut sessions = Vec::new();
        let mut sources = BTreeMap::new();
        for options in &new.sessions {
            match self.sessions.running.get(&options.name) {
                Some(running) if running.options == *options => {
                    sources.insert(options.name.clone(), running.source.clone());
                }
                _ => {
                    let session = Session::build(options.clone(), shared)?;
                    sources.insert(options.name.clone(), session.source.clone());
                    sessions.push(session);
                }
            }
        }
        let rebuilt = |name: &String| sessions.iter().any(|session| session.options.name == *name);
        let mut sinks = Vec::new();
        for options in &new.sinks {
            let name = &options.options.name;
            let same = self.sinks.running.get(name).is_some_and(|running| running.options == *options);
            if let Some(source) = sources.get(&options.session)
                && (!same || rebuilt(&options.session))
            {
                let revoked = new.sessions.iter().any(|it| it.name == options.session && it.lifecycle.revoke_on_exit);
                sinks.push(BuiltSink::build(options.clone(), source.feed.clone(), revoked, shared));
            }
        }
        let mut listeners = Vec::new();
        for options in &new.listeners {
            let running = self.listeners.running.get(&options.name);
            let same = running.is_some_and(|running| running.options == *options);
            if same && !options.sessions.iter().any(rebuilt) {
                continue;
            }
            // By address, whatever the name.
            let socket = self.listeners.running.values().find(|running| running.options.endpoint == options.endpoint);
            let served = options.sessions.iter().filter_map(|name| Some((name.clone(), sources.get(name)?.clone())));
            listeners.push(BoundListener::bind(
                options.clone(),
                served.collect(),
                socket.map(|running| &running.socket),
                inherited,
                shared,
            )?);
        }
        Ok(Plan { sessions, sinks, listeners })
    }

    /// Stops what is gone or replaced, and starts what the plan built.
    pub(super) fn commit(&mut self, plan: Plan, config: &Config) {
        self.listeners.stop_all_but(
            |name| {
                config.listeners.iter().any(|it| it.name == *name) && plan.listeners.iter().all(|it| it.name() != name)
            },
            |running| &running.stop,
        );
        self.sinks.stop_all_but(
            |name| {
                config.sinks.iter().any(|it| it.options.name == *name) && plan.sinks.iter().all(|it| it.name() != name)
            },
            |running| &running.stop,
        );
        self.sessions.stop_all_but(
            |name| {
                config.sessions.iter().any(|it| it.name == *name)
                    && plan.sessions.iter().all(|it| it.options.name != *name)
            },
            |running| &running.stop,
        );
        for session in plan.sessions {
            let stop = self.sessions.tasks.stop_token().child_token();
            let (name, options) = (session.options.name.clone(), session.options.clone());
            let running = RunningSession { options, source: session.source.clone(), stop: stop.clone() };
            self.sessions.tasks.start(format!("session {name}"), session.run(stop));
            self.sessions.running.insert(name, running);
        }
        for sink in plan.sinks {
            let stop = self.sinks.tasks.stop_token().child_token();
            let name = sink.name().to_owned();
            let running = Running { options: sink.options.clone(), stop: stop.clone() };
            self.sinks.tasks.start(format!("sink {name}"), sink.run(stop));
            self.sinks.running.insert(name, running);
        }
        for listener in plan.listeners {
            let stop = self.listeners.tasks.stop_token().child_token();
            let name = listener.name().to_owned();
            // A copy of the socket stays here, so that a reload can hand it over.
            if let Ok(socket) = listener.socket.try_clone() {
                let options = listener.options.clone();
                self.listeners.running.insert(name.clone(), RunningListener { options, socket, stop: stop.clone() });
            }
            self.listeners.tasks.start(format!("listener {name}"), listener.serve(config.agent.stop_grace, stop));
        }
    }
}

impl<R> Group<R> {
    fn stop_all_but(&mut self, keep: impl Fn(&String) -> bool, stop: impl Fn(&R) -> &CancellationToken) {
        self.running.retain(|name, running| {
            let keep = keep(name);
            if !keep {
                stop(running).cancel();
            }
            keep
        });
    }
}
