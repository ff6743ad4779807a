//! What the child process finds of the gateway in its environment, kept the same as the token is.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{CliConfig, Content, ServiceHost, led_here};
use crate::feed::{Feed, Publisher, State, feed};
use crate::program::Provision;
use crate::words::chain;

/// Tells the variables anew with each new token.
#[derive(Debug)]
pub struct ForChild {
    content: Content,
    host: ServiceHost,
    /// The platform's own address.
    platform: String,
    /// Leads the child's Terraform here, where it does not go to the platform itself.
    terraform: Option<CliConfig>,
    publisher: Publisher<Provision>,
}

impl ForChild {
    /// The variables for `host` and where they are read. Those of a token that is there already are there at once; blocks for
    /// Terraform's file, if there is to be one.
    pub fn new(
        content: Content,
        host: ServiceHost,
        platform: String,
        terraform: Option<CliConfig>,
    ) -> (Self, Feed<Provision>) {
        let (publisher, feed) = feed(NONE);
        let mut this = Self { content, host, platform, terraform, publisher };
        let tell = this.look();
        this.publisher.publish(tell(), None);
        (this, feed)
    }

    /// Tells what there is, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        while let Some(true) = stop.run_until_cancelled(self.content.changed()).await {
            let told = tokio::task::spawn_blocking(self.look()).await;
            self.publisher.publish(told.unwrap_or_else(|error| none(&error.to_string())), None);
        }
        stop.cancelled().await;
    }

    /// What makes the variables of the token that is there now.
    fn look(&mut self) -> impl FnOnce() -> State<Provision> + Send + 'static {
        let found = self.content.token(&self.platform);
        let (host, terraform) = (self.host.clone(), self.terraform.clone());
        move || {
            let Some((address, token)) = found else { return none(NONE) };
            match led_here(&host, &address, &token, terraform.as_ref()) {
                Ok(all) if all.names().next().is_some() => State::Serving(Provision::Variables(all).into()),
                Ok(_) => none(NONE),
                Err(error) => none(&chain(&error)),
            }
        }
    }
}

fn none(reason: &str) -> State<Provision> {
    State::None { reason: reason.into(), retry_after: LATER }
}

const NONE: &str = "there is no token of the platform yet";
const LATER: Duration = Duration::from_secs(5);
