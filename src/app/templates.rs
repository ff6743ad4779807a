//! Templates and the secrets that they render, built from their options and joined to the sessions that read them.

use std::slice;

use anyhow::Context as _;
use keyward_agent::process::ProcessInputs;
use keyward_agent::secrets::{EventSubscription, SecretRegistry, SecretRegistryDeps, VersionPoll};
use keyward_agent::server_client::ServerClient;
use keyward_agent::templates::{Template, TemplateDeps, TemplateError, TemplateOptions, TemplateTask};
use keyward_config as config;
use keyward_credentials::credential_watch::{CredentialWatch, credential_channel};
use keyward_machine::command::ProvidedEnv;

use super::reconciler::{Claim, Group, Plan, Work};
use super::session::{PlanContext, Shared, bound_to};
use super::systemd_credentials::CredentialInputs;

/// Templates, by their component's name in health.
pub(super) type Templates = Group<config::Template, CredentialWatch<ProvidedEnv>>;

/// Registries of secrets, by session. One at a time writes the session's file of secrets.
pub(super) type Registries = Group<config::SecretSettings, SecretRegistry>;

/// Change of the templates and registries by a new configuration. Dropping it changes nothing.
pub(super) struct TemplatesPlan {
    pub(super) registries: Plan<config::SecretSettings, SecretRegistry>,
    pub(super) templates: Plan<config::Template, CredentialWatch<ProvidedEnv>>,
    /// Inputs that the child process waits for.
    pub(super) inputs: ProcessInputs,
    /// Sources of the credentials that listeners serve to systemd.
    pub(super) credentials: CredentialInputs,
}

/// Plans the templates, and a registry for each session that reads secrets. The child process also waits for `gateway_inputs`.
pub(super) fn plan(
    templates: &Templates,
    registries: &Registries,
    gateway_inputs: ProcessInputs,
    context: &PlanContext<'_>,
) -> anyhow::Result<TemplatesPlan> {
    let new = context.config;
    let mut plan = TemplatesPlan {
        registries: context.plan(),
        templates: context.plan(),
        inputs: gateway_inputs,
        credentials: CredentialInputs::default(),
    };
    // Only the child process uses environment templates.
    let variables: &[config::Template] = if new.process.is_some() { &new.env_templates } else { &[] };
    let files = new.templates.iter().map(|template| ("template", template));
    let variables = variables.iter().map(|template| ("env_template", template));
    let credentials = new.listeners.iter().flat_map(config::Listener::credential_templates);
    let credentials = credentials.map(|template| ("credential", template));
    for (kind, options) in files.chain(variables).chain(credentials) {
        let registry =
            plan_registry(registries, &mut plan.registries, &options.session, &options.secrets, context)?.clone();
        let template = &options.options;
        let name = format!("{kind}/{}", template.text.name);
        let mut claim = templates.claim(name.as_str(), slice::from_ref(&options.session));
        claim.file = template.file.as_ref().map(|file| file.destination.clone());
        let build = |claim: &Claim| build(template, registry, claim, context.shared);
        let watch = templates.plan(&mut plan.templates, claim, options.clone(), build)?.clone();
        if kind == "credential" {
            plan.credentials.rendered.insert(template.text.name.clone(), watch);
        } else if template.required {
            plan.inputs.push((name, watch));
        }
    }
    for (session, settings) in new.listeners.iter().flat_map(config::Listener::credential_secrets) {
        let registry = plan_registry(registries, &mut plan.registries, session, settings, context)?;
        plan.credentials.registries.insert(session.clone(), registry.clone());
    }
    Ok(plan)
}

fn build(
    options: &TemplateOptions,
    registry: SecretRegistry,
    claim: &Claim,
    shared: &Shared,
) -> anyhow::Result<(CredentialWatch<ProvidedEnv>, Work)> {
    let name = &claim.name;
    let join = |errors: Vec<TemplateError>| {
        let all: Vec<_> = errors.iter().map(TemplateError::to_string).collect();
        anyhow::anyhow!("{name}: {}", all.join("; "))
    };
    let template = Template::compile(options.text.clone()).map_err(join)?;
    let (publisher, watch) = credential_channel("it is not rendered yet");
    let deps = TemplateDeps {
        publisher,
        registry,
        clock: shared.clock.clone(),
        health: shared.health.register(name.as_str(), options.required, "not rendered yet"),
        metrics: shared.metrics.clone(),
        outputs: shared.outputs.clone(),
        launcher: shared.launcher.clone(),
        commands: shared.commands.clone(),
    };
    let task = TemplateTask::new(options.clone(), template, deps);
    Ok((watch, Box::pin(task.run(claim.stop.clone()))))
}

/// Plans the registry of the secrets of a session.
pub(super) fn plan_registry<'a>(
    running: &'a Registries,
    plan: &'a mut Plan<config::SecretSettings, SecretRegistry>,
    name: &String,
    settings: &config::SecretSettings,
    context: &PlanContext<'_>,
) -> anyhow::Result<&'a SecretRegistry> {
    let shared = context.shared;
    running.plan(plan, running.claim(name, slice::from_ref(name)), settings.clone(), |claim| {
        let (session, source) = context.session(name)?;
        let origin = || format!("session {name}");
        let config::SecretSettings { interval, rewrite_interval, version_interval, events, offline } = settings.clone();
        let upstream = ServerClient::build(&session.upstream).with_context(origin)?;
        let registry = SecretRegistry::new(SecretRegistryDeps {
            upstream: upstream.with_metrics(&shared.metrics),
            tokens: source.watch.clone(),
            session: source.refresh_signal.clone(),
            namespace: session.login.namespace.clone(),
            interval,
            rewrite_interval,
            clock: shared.clock.clone(),
            metrics: shared.metrics.clone(),
            offline: offline.map(|offline| (offline, bound_to(session))),
        });
        let (registry, worker) = registry.with_context(origin)?;
        let register = |kind: &str, reason: &str| shared.health.register(format!("{kind}/{name}"), false, reason);
        let subscription = events.then(|| {
            let health = register("events", "waits for the session's token");
            EventSubscription::new(&registry, name, health)
        });
        let (subscription, connection) = subscription.unzip();
        let is_polled = version_interval.is_some() || connection.is_some();
        let poll = is_polled
            .then(|| VersionPoll::new(&registry, version_interval, connection, register("versions", "not polled yet")));
        shared.secrets.insert(name, &registry);
        let stop = claim.stop.clone();
        let work = async move {
            let polled = run_if_some(poll.map(|poll| poll.run(stop.clone())));
            let followed = run_if_some(subscription.map(|subscription| subscription.run(stop.clone())));
            tokio::join!(worker.run(stop.clone()), polled, followed);
        };
        Ok((registry, Box::pin(work)))
    })
}

async fn run_if_some(work: Option<impl Future<Output = ()>>) {
    if let Some(work) = work {
        work.await;
    }
}
