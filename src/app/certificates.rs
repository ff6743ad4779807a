//! Certificates, built from their options and joined to the sessions that request them.

use std::slice;

use keyward_agent::certificates::{CertificateDeps, CertificateTask};
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

/// Plans the certificates, and the registries of their sessions. The child process waits for those that are required.
pub(super) fn plan(
    running: &Certificates,
    registries: &Registries,
    registry_plan: &mut Plan<config::SecretSettings, SecretRegistry>,
    inputs: &mut ProcessInputs,
    context: &PlanContext<'_>,
) -> anyhow::Result<CertificatesPlan> {
    let mut plan = context.plan();
    for certificate in &context.config.certificates {
        let config::Certificate { session, options, secrets } = certificate;
        let registry = templates::plan_registry(registries, registry_plan, session, secrets, context)?.clone();
        let name = format!("certificate/{}", options.name);
        let mut claim = running.claim(name.as_str(), slice::from_ref(session));
        claim.file = Some(options.output.path.clone());
        let build = |claim: &Claim| Ok(build(certificate, registry, claim, context.shared));
        let watch = running.plan(&mut plan, claim, certificate.clone(), build)?;
        if options.required {
            inputs.push((name, watch.clone()));
        }
    }
    Ok(plan)
}

fn build(
    certificate: &config::Certificate,
    registry: SecretRegistry,
    claim: &Claim,
    shared: &Shared,
) -> (CredentialWatch<ProvidedEnv>, Work) {
    let options = certificate.options.clone();
    let (publisher, watch) = credential_channel("it is not written yet");
    let deps = CertificateDeps {
        publisher,
        registry,
        rotation: shared.rotations.register(&options.name, &certificate.session, shared.clock.clone()),
        clock: shared.clock.clone(),
        health: shared.health.register(claim.name.as_str(), options.required, "not written yet"),
        metrics: shared.metrics.clone(),
        outputs: shared.outputs.clone(),
        launcher: shared.launcher.clone(),
    };
    let task = CertificateTask::new(options, deps);
    (watch, Box::pin(task.run(claim.stop.clone())))
}
