//! Certificates, built from their options and joined to their issuers.

use std::slice;

use keyward_agent::certificates::{
    CertificateDeps, CertificateIssuer, CertificateOptions, CertificateTask, EngineOptions,
};
use keyward_agent::identity::X509SvidOptions;
use keyward_agent::process::ProcessInputs;
use keyward_agent::secrets::SecretRegistry;
use keyward_config as config;
use keyward_credentials::credential_watch::{CredentialWatch, credential_channel};
use keyward_machine::command::ProvidedEnv;

use super::reconciler::{Claim, Group, Plan, Work};
use super::session::{PlanContext, Shared};
use super::templates::{self, Registries};

/// Certificates, by their component's name in health. The handle tells when the files are written.
pub(super) type Certificates = Group<config::Certificate, CredentialWatch<ProvidedEnv>>;

/// Change of the certificates by a new configuration. Dropping it changes nothing.
pub(super) type CertificatesPlan = Plan<config::Certificate, CredentialWatch<ProvidedEnv>>;

/// Plans the certificates, and the registries of the sessions that request them. The child process waits for those that are required.
pub(super) fn plan(
    running: &Certificates,
    registries: &Registries,
    registry_plan: &mut Plan<config::SecretSettings, SecretRegistry>,
    inputs: &mut ProcessInputs,
    context: &PlanContext<'_>,
) -> anyhow::Result<CertificatesPlan> {
    let mut plan = context.plan();
    for certificate in &context.config.certificates {
        let options = &certificate.options;
        let (sessions, issuer) = match &certificate.issuer {
            config::CertificateIssuer::WorkloadApi(options) => ([].as_slice(), Issuer::WorkloadApi(options)),
            config::CertificateIssuer::Engine(engine) => {
                let (session, secrets) = (&engine.session, &engine.secrets);
                let registry = templates::plan_registry(registries, registry_plan, session, secrets, context)?.clone();
                (slice::from_ref(session), Issuer::Engine(engine, registry))
            }
        };
        let name = format!("certificate/{}", options.name);
        let mut claim = running.claim(name.as_str(), sessions);
        claim.file = Some(options.output.path.clone());
        let build = |claim: &Claim| Ok(build(options, issuer, claim, context.shared));
        let watch = running.plan(&mut plan, claim, certificate.clone(), build)?;
        if options.required {
            inputs.push((name, watch.clone()));
        }
    }
    Ok(plan)
}

/// Issuer of a certificate, with what it needs of the running agent.
enum Issuer<'a> {
    Engine(&'a config::EngineCertificate, SecretRegistry),
    WorkloadApi(&'a X509SvidOptions),
}

fn build(
    options: &CertificateOptions,
    issuer: Issuer<'_>,
    claim: &Claim,
    shared: &Shared,
) -> (CredentialWatch<ProvidedEnv>, Work) {
    let issuer = match issuer {
        Issuer::WorkloadApi(options) => CertificateIssuer::WorkloadApi(options.clone()),
        Issuer::Engine(engine, registry) => CertificateIssuer::Engine(Box::new(EngineOptions {
            request: engine.request.clone(),
            renewal: engine.renewal,
            registry,
            rotation: shared.rotations.register(&options.name, &engine.session, shared.clock.clone()),
        })),
    };
    let (publisher, watch) = credential_channel("it is not written yet");
    let deps = CertificateDeps {
        publisher,
        clock: shared.clock.clone(),
        health: shared.health.register(claim.name.as_str(), options.required, "not written yet"),
        metrics: shared.metrics.clone(),
        outputs: shared.outputs.clone(),
        launcher: shared.launcher.clone(),
        commands: shared.commands.clone(),
    };
    let task = CertificateTask::new(options.clone(), issuer, deps);
    (watch, Box::pin(task.run(claim.stop.clone())))
}
