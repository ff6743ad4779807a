//! What the child process finds of the gateway in its environment, kept the same as the token is.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{CliConfig, ServiceHost, TokenSource, client_env};
use crate::clock::Clock;
use crate::command::ProvidedEnv;
use crate::credential_watch::{Availability, CredentialPublisher, CredentialWatch, credential_channel};
use crate::error_chain::format_chain;

/// Tells the variables anew with each new token.
#[derive(Debug)]
pub struct ChildEnv {
    content: TokenSource,
    host: ServiceHost,
    /// The platform's own address.
    platform: String,
    /// Leads the child's Terraform here, where it does not go to the platform itself.
    terraform: Option<CliConfig>,
    clock: Clock,
    publisher: CredentialPublisher<ProvidedEnv>,
    /// Why there is nothing, where there is not.
    missing_reason: Option<Arc<str>>,
}

impl ChildEnv {
    /// The variables for `host` and where they are read. Those of a token that is there already are there at once; blocks for
    /// Terraform's file, if there is to be one.
    pub fn new(
        content: TokenSource,
        host: ServiceHost,
        platform: String,
        terraform: Option<CliConfig>,
        clock: Clock,
    ) -> (Self, CredentialWatch<ProvidedEnv>) {
        let (publisher, watch) = credential_channel(NO_TOKEN);
        let mut this = Self { content, host, platform, terraform, clock, publisher, missing_reason: None };
        let load = this.prepare();
        this.publish(load());
        (this, watch)
    }

    /// Tells what there is, until `stop`. While there is nothing it looks again every 5 s: what keeps Terraform's file from being
    /// made may be mended.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let again = self.missing_reason.is_some().then(|| self.clock.now() + RETRY_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until_some(again) => {}
                changed = self.content.changed() => if !changed { return stop.cancelled().await },
            }
            let state = tokio::task::spawn_blocking(self.prepare()).await;
            self.publish(state.unwrap_or_else(|error| unavailable(&error.to_string())));
        }
    }

    /// Tells it, but for what was told already.
    fn publish(&mut self, state: Availability<ProvidedEnv>) {
        let missing_reason = match &state {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(Arc::clone(reason)),
        };
        if missing_reason.is_none() || missing_reason != self.missing_reason {
            if let Some(reason) = missing_reason.as_deref().filter(|reason| *reason != NO_TOKEN) {
                tracing::warn!(event = "gateway.child.failed", reason, "the child cannot be led to the gateway");
            }
            self.publisher.publish(state, None);
        }
        self.missing_reason = missing_reason;
    }

    /// What makes the variables of the token that is there now.
    fn prepare(&mut self) -> impl FnOnce() -> Availability<ProvidedEnv> + Send + 'static {
        let credentials = self.content.current_token(&self.platform);
        let (host, terraform) = (self.host.clone(), self.terraform.clone());
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

const NO_TOKEN: &str = "there is no token of the platform yet";
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
