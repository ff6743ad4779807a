//! What the child process finds of the gateway in its environment, kept the same as the token is.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{CliConfig, Content, ServiceHost, led_here};
use crate::clock::Clock;
use crate::command::ProvidedEnv;
use crate::credential_watch::{Availability, CredentialPublisher, CredentialWatch, credential_channel};
use crate::error_chain::format_chain;

/// Tells the variables anew with each new token.
#[derive(Debug)]
pub struct ForChild {
    content: Content,
    host: ServiceHost,
    /// The platform's own address.
    platform: String,
    /// Leads the child's Terraform here, where it does not go to the platform itself.
    terraform: Option<CliConfig>,
    clock: Clock,
    publisher: CredentialPublisher<ProvidedEnv>,
    /// Why there is nothing, where there is not.
    lacks: Option<Arc<str>>,
}

impl ForChild {
    /// The variables for `host` and where they are read. Those of a token that is there already are there at once; blocks for
    /// Terraform's file, if there is to be one.
    pub fn new(
        content: Content,
        host: ServiceHost,
        platform: String,
        terraform: Option<CliConfig>,
        clock: Clock,
    ) -> (Self, CredentialWatch<ProvidedEnv>) {
        let (publisher, watch) = credential_channel(NONE);
        let mut this = Self { content, host, platform, terraform, clock, publisher, lacks: None };
        let tell = this.look();
        this.tell(tell());
        (this, watch)
    }

    /// Tells what there is, until `stop`. While there is nothing it looks again every 5 s: what keeps Terraform's file from being
    /// made may be mended.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let again = self.lacks.is_some().then(|| self.clock.now() + LATER);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until_some(again) => {}
                changed = self.content.changed() => if !changed { return stop.cancelled().await },
            }
            let told = tokio::task::spawn_blocking(self.look()).await;
            self.tell(told.unwrap_or_else(|error| none(&error.to_string())));
        }
    }

    /// Tells it, but for what was told already.
    fn tell(&mut self, told: Availability<ProvidedEnv>) {
        let lacks = match &told {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(Arc::clone(reason)),
        };
        if lacks.is_none() || lacks != self.lacks {
            if let Some(reason) = lacks.as_deref().filter(|reason| *reason != NONE) {
                tracing::warn!(event = "gateway.child.failed", reason, "the child cannot be led to the gateway");
            }
            self.publisher.publish(told, None);
        }
        self.lacks = lacks;
    }

    /// What makes the variables of the token that is there now.
    fn look(&mut self) -> impl FnOnce() -> Availability<ProvidedEnv> + Send + 'static {
        let found = self.content.token(&self.platform);
        let (host, terraform) = (self.host.clone(), self.terraform.clone());
        move || {
            let Some((address, token)) = found else { return none(NONE) };
            match led_here(&host, &address, &token, terraform.as_ref()) {
                Ok(all) if all.names().next().is_some() => Availability::Available(ProvidedEnv::Variables(all).into()),
                Ok(_) => none(NONE),
                Err(error) => none(&format_chain(&error)),
            }
        }
    }
}

fn none(reason: &str) -> Availability<ProvidedEnv> {
    Availability::Unavailable { reason: reason.into(), retry_after: LATER }
}

const NONE: &str = "there is no token of the platform yet";
const LATER: Duration = Duration::from_secs(5);
