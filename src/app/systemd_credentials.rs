//! Credentials for systemd, joined to the sessions, secrets and templates that they come from.

use std::collections::BTreeMap;

use anyhow::Context as _;
use keyward_agent::secrets::SecretRegistry;
use keyward_agent::systemd_credentials::{
    CredentialServer, CredentialServerDeps, CredentialServerOptions, CredentialSource,
};
use keyward_agent::token::SessionHandle;
use keyward_config as config;
use keyward_config::CredentialContent;
use keyward_credentials::credential_watch::CredentialWatch;
use keyward_machine::command::ProvidedEnv;

use super::session::Shared;

/// Secrets and rendered templates of the credentials of all listeners.
#[derive(Debug, Default)]
pub(super) struct CredentialInputs {
    /// By session.
    pub(super) registries: BTreeMap<String, SecretRegistry>,
    /// By the template's name, `LISTENER/NAME`.
    pub(super) rendered: BTreeMap<String, CredentialWatch<ProvidedEnv>>,
}

/// Builds the server of a listener. `tokens` has the sessions as the listener serves their tokens, derived ones perhaps.
pub(super) fn build_server(
    listener: &config::Listener,
    credentials: &config::SystemdCredentials,
    tokens: &BTreeMap<String, SessionHandle>,
    inputs: &CredentialInputs,
    shared: &Shared,
) -> anyhow::Result<CredentialServer> {
    let options =
        CredentialServerOptions { name: listener.name.clone(), wait: credentials.wait, required: listener.required };
    let deps = CredentialServerDeps {
        clock: shared.clock.clone(),
        metrics: shared.metrics.clone(),
        health: shared.health.clone(),
        auditor: shared.auditor.clone(),
    };
    let mut server = CredentialServer::new(options, deps);
    for grant in &credentials.grants {
        let missing = || format!("listener {}: credential {} has no source", listener.name, grant.name);
        let session = tokens.get(&grant.session).with_context(missing)?;
        let source = match &grant.content {
            CredentialContent::Token => CredentialSource::Token(session.watch.clone()),
            CredentialContent::Secret { request, field, .. } => CredentialSource::Secret {
                registry: inputs.registries.get(&grant.session).with_context(missing)?.clone(),
                request: request.clone(),
                field: field.clone(),
            },
            CredentialContent::Template(template) => {
                let rendered = inputs.rendered.get(&template.options.text.name).with_context(missing)?;
                CredentialSource::Rendered(rendered.clone())
            }
        };
        server.add(&grant.name, grant.rule.clone(), source, session.refresh_signal.demand().clone());
    }
    Ok(server)
}
