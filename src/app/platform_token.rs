//! Source of the gateway's platform token: a file, a secret that a session reads, or the gateway itself.

use anyhow::Context as _;
use keyward_agent::secrets::{
    QuickRetryBudget, SecretOptions, SecretRenewer, SecretRenewerDeps, SecretRequest, SecretResponse,
};
use keyward_agent::server_client::ServerClient;
use keyward_config as config;
use keyward_config::TokenSource;
use keyward_credentials::credential_watch::{RefreshSignal, credential_channel};
use keyward_gateway::platform_token::{PlatformToken, PlatformTokenFile, PlatformTokenSource};
use keyward_gateway::token_minting::{self, Minter};
use keyward_machine::clock::ClockReading;
use tokio_util::sync::CancellationToken;

use super::session::PlanContext;

/// Provides the gateway with platform tokens while it runs.
#[derive(Debug)]
pub(super) enum PlatformTokenProvider {
    File(PlatformTokenFile),
    Secret(Box<SecretRenewer<PlatformToken>>),
    Mint(Box<Minter>),
}

impl PlatformTokenProvider {
    /// Builds the source that the configuration names. Reads nothing yet.
    pub(super) fn build(
        options: &config::Gateway,
        context: &PlanContext<'_>,
    ) -> anyhow::Result<(Self, PlatformTokenSource)> {
        let shared = context.shared;
        let health = shared.health.register("gateway/token", options.required, "no platform token yet");
        let secret = match &options.token {
            TokenSource::File(path) => {
                health.set_target(format!("file {}", path.display()));
                let (file, source) = PlatformTokenFile::new(path.clone(), shared.clock.clone(), health);
                return Ok((Self::File(file), source));
            }
            TokenSource::Mint(mint) => {
                health.set_target(format!("minted for {}", mint.owner));
                let parts = token_minting::MinterDependencies {
                    upstream: options.proxy.upstream.clone(),
                    ca_file: options.proxy.ca_file.clone(),
                    proxy: options.proxy.proxy.clone(),
                    local_token_file: options.local_token.file.clone(),
                    clock: shared.clock.clone(),
                    health,
                };
                let minter = Minter::new(mint.clone(), parts).context("the gateway cannot create platform tokens")?;
                return Ok((Self::Mint(Box::new(minter.0)), minter.1));
            }
            TokenSource::Secret(secret) => secret,
        };
        let (session, tokens) = context.session(&secret.session)?;
        let (publisher, watch) = credential_channel("the platform token has not been read yet");
        let refresh_signal = RefreshSignal::new(shared.clock.clone());
        let origin = format!("secret {} by session {}", secret.path, secret.session);
        health.set_target(origin.as_str());
        let source = PlatformTokenSource { watch, refresh_signal: refresh_signal.clone(), origin };
        let secret_options = SecretOptions {
            name: "gateway".to_owned(),
            label: "gateway".to_owned(),
            request: SecretRequest::read(secret.path.clone()),
            field: secret.field.clone(),
            namespace: session.login.namespace.clone(),
            interval: secret.interval,
            rewrite_interval: None,
            grace: secret.grace,
        };
        let parts = SecretRenewerDeps {
            publisher,
            projection: platform_token,
            upstream: ServerClient::build(&session.upstream)
                .with_context(|| format!("session {}", session.name))?
                .with_metrics(&shared.metrics),
            tokens: tokens.watch.clone(),
            session: tokens.refresh_signal.clone(),
            refresh_signal,
            clock: shared.clock.clone(),
            health: Some(health),
            circuit_breaker: None,
            retry_budget: QuickRetryBudget::default(),
            metrics: shared.metrics.clone(),
        };
        Ok((Self::Secret(Box::new(SecretRenewer::new(secret_options, parts))), source))
    }

    /// Runs the source until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        match self {
            Self::File(file) => file.run(stop).await,
            Self::Secret(secret) => secret.run(stop).await,
            Self::Mint(minter) => minter.run(stop).await,
        }
    }
}

fn platform_token(
    options: &SecretOptions,
    response: &SecretResponse,
    read: ClockReading,
) -> Result<PlatformToken, String> {
    let Some(secret) = response.data.text(&options.field) else {
        return Err(format!("{} has no string in the field {:?}", options.request.path, options.field));
    };
    PlatformToken::parse(secret, read).map_err(|error| format!("the field {:?}: {error}", options.field))
}
