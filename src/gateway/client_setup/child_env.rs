//! Environment variables of the child process that point its clients at the gateway, renewed with the token.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, CredentialPublisher, CredentialWatch, credential_channel};
use keyward_machine::clock::Clock;
use keyward_machine::command::ProvidedEnv;
use keyward_telemetry::error_chain::format_chain;
use tokio_util::sync::CancellationToken;

use super::{ClientTokenSource, ProgramCliConfig, ServiceHost, client_env};

/// Publishes the variables anew with each token.
#[derive(Debug)]
pub struct ChildEnv {
    content: ClientTokenSource,
    host: ServiceHost,
    /// The platform's own address.
    platform: String,
    /// Configuration that points the child's Terraform at the gateway; `None` if it calls the platform itself.
    terraform: Option<ProgramCliConfig>,
    clock: Clock,
    publisher: CredentialPublisher<ProvidedEnv>,
    /// Reason why there are no variables, if there are none.
    missing_reason: Option<Arc<str>>,
}

impl ChildEnv {
    /// Creates the publisher for `host` and a watch of its variables. Publishes an existing token at once; blocks if a
    /// file for Terraform is written.
    pub fn new(
        content: ClientTokenSource,
        host: ServiceHost,
        platform: String,
        terraform: Option<ProgramCliConfig>,
        clock: Clock,
    ) -> (Self, CredentialWatch<ProvidedEnv>) {
        let (publisher, watch) = credential_channel(NO_TOKEN);
        let mut this = Self { content, host, platform, terraform, clock, publisher, missing_reason: None };
        let load = this.prepare();
        this.publish(load());
        (this, watch)
    }

    /// Publishes until `stop`. While there are no variables it retries every 5 s, as the error of Terraform's file may
    /// be fixed.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let retry_at = self.missing_reason.is_some().then(|| self.clock.now() + RETRY_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until_some(retry_at) => {}
                changed = self.content.changed() => if !changed { return stop.cancelled().await },
            }
            let state = tokio::task::spawn_blocking(self.prepare()).await;
            self.publish(state.unwrap_or_else(|error| unavailable(&error.to_string())));
        }
    }

    /// Publishes a state, unless it repeats the last one.
    fn publish(&mut self, state: Availability<ProvidedEnv>) {
        let missing_reason = match &state {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(Arc::clone(reason)),
        };
        if missing_reason.is_none() || missing_reason != self.missing_reason {
            if let Some(error) = missing_reason.as_deref().filter(|reason| *reason != NO_TOKEN) {
                tracing::warn!(
                    event = "gateway.client_env.failed",
                    error,
                    "cannot set the gateway's variables for the process"
                );
            }
            self.publisher.publish(state, None);
        }
        self.missing_reason = missing_reason;
    }

    /// Prepares a closure that builds the variables of the current token; it may block.
    fn prepare(&mut self) -> impl FnOnce() -> Availability<ProvidedEnv> + Send + 'static {
        let credentials = self.content.current_token(&self.platform);
        let host = self.host.clone();
        let terraform = self.terraform.clone();
        move || {
            let Some((address, token)) = credentials else { return unavailable(NO_TOKEN) };
            match client_env(&host, &address, &token, terraform.as_ref()) {
                Ok(all) if all.names().next().is_some() => Availability::Available(ProvidedEnv::Variables(all).into()),
                Ok(_) => unavailable(NO_TOKEN),
                Err(error) => unavailable(&format_chain(&error)),
            }
        }
    }
}

fn unavailable(reason: &str) -> Availability<ProvidedEnv> {
    Availability::Unavailable { reason: reason.into(), retry_after: RETRY_INTERVAL }
}

const NO_TOKEN: &str = "there is no platform token yet";
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
