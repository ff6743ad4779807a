//! Templates and the child, built from their options and joined to the sessions that their secrets are read through.

use std::collections::BTreeMap;

use anyhow::Context as _;
use keyward_agent::process::{ProcessInputs, ProcessOptions, Supervisor, SupervisorDeps};
use keyward_agent::secrets::{RegistryWorker, SecretRegistry, SecretRegistryDeps};
use keyward_agent::server_client::ServerClient;
use keyward_agent::templates::{Template, TemplateDeps, TemplateTask};
use keyward_config as config;
use keyward_config::Config;
use keyward_credentials::credential_watch::{CredentialWatch, credential_channel};
use keyward_machine::command::ProvidedEnv;
use keyward_machine::tasks::{TaskError, TaskGroup};
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::session::{SessionRefs, Shared, bound_to};
use super::stopping::{STOP_LIMIT, StoppingOutput, StoppingOutputs};
use super::systemd_credentials::CredentialInputs;

/// The running templates, and the child process that waits for them.
#[derive(Debug, Default)]
pub(super) struct RunningTemplates {
    pub(super) tasks: TaskGroup,
    /// By session.
    registries: BTreeMap<String, RunningRegistry>,
    /// By their component's name in health.
    templates: BTreeMap<String, RunningTemplate>,
    stopping: StoppingOutputs,
    child: Option<RunningChild>,
    pub(super) ended: ExitCodes,
}

/// Channel for the exit code of a child process that ended for good.
#[derive(Debug)]
pub(super) struct ExitCodes {
    sender: mpsc::Sender<u8>,
    receiver: mpsc::Receiver<u8>,
}

impl Default for ExitCodes {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(1);
        Self { sender, receiver }
    }
}

impl ExitCodes {
    /// Waits for the exit code of a child process that ended for good.
    pub(super) async fn next(&mut self) -> u8 {
        match self.receiver.recv().await {
            Some(code) => code,
            None => std::future::pending().await,
        }
    }
}

#[derive(Debug)]
struct RunningTemplate {
    options: config::Template,
    watch: CredentialWatch<ProvidedEnv>,
    stop: CancellationToken,
    done: CancellationToken,
}

#[derive(Debug)]
struct RunningChild {
    options: ProcessOptions,
    inputs: watch::Sender<ProcessInputs>,
    signals: mpsc::Sender<Signal>,
    stop: CancellationToken,
    /// Cancelled where another one takes its place, so that its code ends nothing.
    replaced: CancellationToken,
    done: CancellationToken,
}

#[derive(Debug)]
struct RunningRegistry {
    registry: SecretRegistry,
    settings: config::SecretSettings,
    stop: CancellationToken,
    /// Cancelled once it keeps and writes nothing any more.
    done: CancellationToken,
}

/// Change of templates and child process by a new configuration. Dropping it changes nothing.
#[derive(Debug)]
pub(super) struct TemplatesPlan {
    registries: Vec<(String, SecretRegistry, config::SecretSettings, RegistryWorker)>,
    templates: Vec<BuiltTemplate>,
    /// The templates that run then, and the inputs that the child waits for.
    component_names: Vec<String>,
    inputs: ProcessInputs,
    child: Option<BuiltChild>,
    /// Sources of the credentials that listeners serve to systemd.
    pub(super) credentials: CredentialInputs,
}

impl TemplatesPlan {
    /// Adds the output of a template: a systemd credential, or an input of the child process if it is required.
    fn add_output(
        &mut self,
        kind: &str,
        name: String,
        options: &config::Template,
        watch: &CredentialWatch<ProvidedEnv>,
    ) {
        if kind == "credential" {
            self.credentials.rendered.insert(options.options.text.name.clone(), watch.clone());
        } else if options.options.required {
            self.inputs.push((name, watch.clone()));
        }
    }

    /// Returns the registry of a session, built if this plan has none yet.
    fn registry(
        &mut self,
        session: &str,
        settings: config::SecretSettings,
        sessions: SessionRefs<'_>,
        shared: &Shared,
    ) -> anyhow::Result<SecretRegistry> {
        if let Some((_, registry, ..)) = self.registries.iter().find(|(name, ..)| *name == session) {
            return Ok(registry.clone());
        }
        let (registry, worker) = registry(session, &settings, sessions, shared)?;
        self.registries.push((session.to_owned(), registry.clone(), settings, worker));
        Ok(registry)
    }
}

#[derive(Debug)]
struct BuiltTemplate {
    name: String,
    options: config::Template,
    watch: CredentialWatch<ProvidedEnv>,
    task: TemplateTask,
}

#[derive(Debug)]
struct BuiltChild {
    options: ProcessOptions,
    inputs: watch::Sender<ProcessInputs>,
    signals: mpsc::Sender<Signal>,
    supervisor: Supervisor,
}

impl RunningTemplates {
    /// Builds the templates and the child process of `new` that do not run already. Templates of a `rebuilt` session are
    /// rebuilt too. The child process also waits for `beside`.
    pub(super) fn plan(
        &self,
        new: &Config,
        sessions: SessionRefs<'_>,
        rebuilt: impl Fn(&String) -> bool,
        gateway_inputs: ProcessInputs,
        shared: &Shared,
    ) -> anyhow::Result<TemplatesPlan> {
        let mut plan = TemplatesPlan {
            registries: Vec::new(),
            templates: Vec::new(),
            component_names: Vec::new(),
            inputs: gateway_inputs,
            child: None,
            credentials: CredentialInputs::default(),
        };
        // Only the child process uses environment templates.
        let variables: &[config::Template] = if new.process.is_some() { &new.env_templates } else { &[] };
        let all = new.templates.iter().map(|template| ("template", template));
        let credentials = new.listeners.iter().flat_map(config::Listener::credential_templates);
        let credentials = credentials.map(|template| ("credential", template));
        for (kind, options) in all.chain(variables.iter().map(|template| ("env_template", template))).chain(credentials)
        {
            let name = format!("{kind}/{}", options.options.text.name);
            plan.component_names.push(name.clone());
            let settings = options.secrets.clone();
            let reusable = self.reusable(&options.session, &settings, &rebuilt);
            if reusable.is_some()
                && let Some(running) = self.templates.get(&name).filter(|running| running.options == *options)
            {
                plan.add_output(kind, name, options, &running.watch);
                continue;
            }
            let registry = match reusable {
                Some(running) => running.registry.clone(),
                None => plan.registry(&options.session, settings, sessions, shared)?,
            };
            let built = BuiltTemplate::build(name, options, registry, shared)?;
            plan.add_output(kind, built.name.clone(), options, &built.watch);
            plan.templates.push(built);
        }
        for (session, settings) in new.listeners.iter().flat_map(config::Listener::credential_secrets) {
            let settings = settings.clone();
            let registry = match self.reusable(session, &settings, &rebuilt) {
                Some(running) => running.registry.clone(),
                None => plan.registry(session, settings, sessions, shared)?,
            };
            plan.credentials.registries.insert(session.to_owned(), registry);
        }
        let is_unchanged = self.child.as_ref().map(|child| &child.options) == new.process.as_ref();
        plan.child = new.process.as_ref().filter(|_| !is_unchanged).map(|options| {
            let (inputs, awaited) = watch::channel(plan.inputs.clone());
            let (signals, signal_receiver) = mpsc::channel(16);
            let parts = SupervisorDeps {
                signals: signal_receiver,
                launcher: shared.launcher.clone(),
                clock: shared.clock.clone(),
                health: shared.health.register("process", true, "not started yet"),
                metrics: shared.metrics.clone(),
            };
            let supervisor = Supervisor::new(options.clone(), awaited, parts);
            BuiltChild { options: options.clone(), inputs, signals, supervisor }
        });
        Ok(plan)
    }

    /// Returns the running registry of a session if it can continue to run.
    fn reusable(
        &self,
        session: &String,
        settings: &config::SecretSettings,
        rebuilt: impl Fn(&String) -> bool,
    ) -> Option<&RunningRegistry> {
        let running = self.registries.get(session)?;
        (running.settings == *settings && !rebuilt(session)).then_some(running)
    }

    /// Stops removed and replaced templates, and starts those that the plan built.
    pub(super) fn commit(&mut self, plan: TemplatesPlan, config: &Config) {
        let is_unchanged = |name: &String| {
            plan.component_names.contains(name) && !plan.templates.iter().any(|built| built.name == *name)
        };
        for (name, RunningTemplate { options, stop, done, .. }) in
            self.templates.extract_if(.., |name, _| !is_unchanged(name))
        {
            stop.cancel();
            let file = options.options.file.map(|file| file.destination);
            self.stopping.add(StoppingOutput { name, session: options.session, file, done });
        }
        for (session, registry, settings, worker) in plan.registries {
            let stop = self.tasks.stop_token().child_token();
            let done = CancellationToken::new();
            // Only one registry writes the session's state file at a time.
            let follows = self.registries.remove(&session).map(|predecessor| {
                predecessor.stop.cancel();
                predecessor.done
            });
            let running = stop.clone();
            let over = done.clone().drop_guard();
            self.tasks.start(format!("secrets of session {session}"), async move {
                let _over = over;
                if let Some(other) = follows {
                    other.cancelled().await;
                }
                worker.run(running).await;
                Ok(())
            });
            self.registries.insert(session, RunningRegistry { registry, settings, stop, done });
        }
        for built in plan.templates {
            let stop = self.tasks.stop_token().child_token();
            let done = CancellationToken::new();
            let file = built.options.options.file.as_ref().map(|file| file.destination.as_path());
            let task = built.task;
            let follows = self.stopping.predecessors(&built.name, file);
            let running =
                RunningTemplate { options: built.options, watch: built.watch, stop: stop.clone(), done: done.clone() };
            self.tasks.start(built.name.clone(), async move {
                let _done = done.drop_guard();
                follows.wait().await;
                task.run(stop).await;
                Ok(())
            });
            self.templates.insert(built.name, running);
        }
        let secrets: Vec<_> = config.listeners.iter().flat_map(config::Listener::credential_secrets).collect();
        let used = |session: &String| {
            self.templates.values().any(|running| running.options.session == *session)
                || secrets.iter().any(|(name, ..)| *name == session)
        };
        self.registries.extract_if(.., |session, _| !used(session)).for_each(|(_, registry)| registry.stop.cancel());
        self.commit_child(plan.child, plan.inputs, config.process.is_some());
    }

    fn commit_child(&mut self, new: Option<BuiltChild>, inputs: ProcessInputs, has_process: bool) {
        let predecessor = if new.is_some() || !has_process { self.child.take() } else { None };
        if let Some(child) = &predecessor {
            child.replaced.cancel();
            child.stop.cancel();
        }
        if let Some(child) = &self.child {
            child.inputs.send_replace(inputs);
        }
        let Some(BuiltChild { options, inputs, signals, supervisor }) = new else { return };
        let stop = self.tasks.stop_token().child_token();
        let replaced = CancellationToken::new();
        let done = CancellationToken::new();
        let stopped = stop.clone();
        let forgotten = replaced.clone();
        let over = done.clone();
        let ended = self.ended.sender.clone();
        self.tasks.start("process", async move {
            let _over = over.drop_guard();
            if let Some(other) = predecessor {
                other.done.cancelled().await;
            }
            if let Some(code) = supervisor.run(stopped).await
                && !forgotten.is_cancelled()
            {
                let _ = ended.send(code).await;
            }
            Ok(())
        });
        self.child = Some(RunningChild { options, inputs, signals, stop, replaced, done });
    }

    /// Sends a signal to the child process.
    pub(super) fn forward_signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let _ = child.signals.try_send(signal);
        }
    }

    /// Stops the child process, before the listeners that it may use. Returns its exit code, if it ran.
    pub(super) async fn stop_child(&mut self) -> Option<u8> {
        let child = self.child.take()?;
        child.stop.cancel();
        child.done.cancelled().await;
        self.ended.receiver.try_recv().ok()
    }

    /// Stops all. Files stay as they are.
    pub(super) async fn stop(self) -> Result<(), TaskError> {
        self.tasks.stop_token().cancel();
        self.tasks.run(STOP_LIMIT).await
    }
}

impl BuiltTemplate {
    fn build(
        name: String,
        options: &config::Template,
        registry: SecretRegistry,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let join = |errors: Vec<_>| {
            let all: Vec<_> = errors.iter().map(keyward_agent::templates::TemplateError::to_string).collect();
            anyhow::anyhow!("{name}: {}", all.join("; "))
        };
        let template = Template::compile(options.options.text.clone()).map_err(join)?;
        let (publisher, watch) = credential_channel("it is not rendered yet");
        let parts = TemplateDeps {
            publisher,
            registry,
            clock: shared.clock.clone(),
            health: shared.health.register(name.clone(), options.options.required, "not rendered yet"),
            metrics: shared.metrics.clone(),
            outputs: shared.outputs.clone(),
            launcher: shared.launcher.clone(),
        };
        let task = TemplateTask::new(options.options.clone(), template, parts);
        Ok(Self { name, options: options.clone(), watch, task })
    }
}

fn registry(
    name: &str,
    settings: &config::SecretSettings,
    sessions: SessionRefs<'_>,
    shared: &Shared,
) -> anyhow::Result<(SecretRegistry, RegistryWorker)> {
    let session = sessions.options.iter().find(|session| session.name == name).zip(sessions.sources.get(name));
    let (session, source) = session.with_context(|| format!("there is no session {name}"))?;
    let config::SecretSettings { interval, rewrite_interval, offline } = settings.clone();
    let registry = SecretRegistry::new(SecretRegistryDeps {
        upstream: ServerClient::build(&session.upstream)
            .with_context(|| format!("session {name}"))?
            .with_metrics(&shared.metrics),
        tokens: source.watch.clone(),
        session: source.refresh_signal.clone(),
        namespace: session.login.namespace.clone(),
        interval,
        rewrite_interval,
        clock: shared.clock.clone(),
        metrics: shared.metrics.clone(),
        offline: offline.map(|offline| (offline, bound_to(session))),
    });
    registry.with_context(|| format!("session {name}"))
}
