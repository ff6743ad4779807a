//! Environment variables of the child process that point its clients at the gateway, renewed with the token.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, CredentialPublisher, CredentialWatch, credential_channel};
use keyward_machine::clock::Clock;
use keyward_machine::command::ProvidedEnv;
use keyward_telemetry::error_chain::format_chain;
use tokio_util::sync::CancellationToken;

use super::{ClientTokenSource, GatewayClient, PreparedCliConfig, ServiceHost, client_env};

/// Publishes the variables anew with each token.
#[derive(Debug)]
pub struct ChildEnv {
    content: ClientTokenSource,
    host: ServiceHost,
    /// The platform's own address.
    platform: String,
    /// Setup of the child's clients for the gateway; `None` if they call the platform itself.
    client: Option<GatewayClient>,
    clock: Clock,
    publisher: CredentialPublisher<ProvidedEnv>,
    /// Reason why there are no variables, if there are none.
    missing_reason: Option<Arc<str>>,
    /// File that the published variables name, until it is written.
    prepared: Option<PreparedCliConfig>,
}

impl ChildEnv {
    /// Creates the publisher for `host` and a watch of its variables. Publishes an existing token at once; blocks if there
    /// is a file for Terraform. The file itself is written by [`ChildEnv::commit`]: a configuration that is not used in the
    /// end must not replace the file of a running program.
    pub fn new(
        content: ClientTokenSource,
        host: ServiceHost,
        platform: String,
        client: Option<GatewayClient>,
        clock: Clock,
    ) -> (Self, CredentialWatch<ProvidedEnv>) {
        let (publisher, watch) = credential_channel(NO_TOKEN);
        let mut this = Self { content, host, platform, client, clock, publisher, missing_reason: None, prepared: None };
        let load = this.prepare();
        let (state, prepared) = load();
        this.prepared = prepared;
        this.publish(state);
        (this, watch)
    }

    /// Writes the file that the published variables name. Blocks. An error is retried by [`ChildEnv::run`].
    pub fn commit(&mut self) {
        if let Some(Err(error)) = self.prepared.take().map(|file| file.write()) {
            self.publish(unavailable(&format_chain(&error)));
        }
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
            let load = self.prepare();
            let write = move || match load() {
                (state, None) => state,
                (state, Some(file)) => file.write().map_or_else(|error| unavailable(&format_chain(&error)), |()| state),
            };
            let state = tokio::task::spawn_blocking(write).await;
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
    fn prepare(&mut self) -> impl FnOnce() -> PreparedState + Send + 'static {
        let credentials = self.content.current_token(&self.platform);
        let host = self.host.clone();
        let client = self.client.clone();
        move || {
            let Some((address, token)) = credentials else { return (unavailable(NO_TOKEN), None) };
            match client_env(&host, &address, &token, client.as_ref()) {
                Ok((all, file)) if all.names().next().is_some() => {
                    (Availability::Available(ProvidedEnv::Variables(all).into()), file)
                }
                Ok(_) => (unavailable(NO_TOKEN), None),
                Err(error) => (unavailable(&format_chain(&error)), None),
            }
        }
    }
}

/// Variables, and the file that they name.
type PreparedState = (Availability<ProvidedEnv>, Option<PreparedCliConfig>);

fn unavailable(reason: &str) -> Availability<ProvidedEnv> {
    Availability::Unavailable { reason: reason.into(), retry_after: RETRY_INTERVAL }
}

const NO_TOKEN: &str = "there is no platform token yet";
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
