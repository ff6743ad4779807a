//! What the child process finds of the gateway in its environment, kept the same as the token is.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Content, ServiceHost, variables};
use crate::feed::{Feed, Publisher, State, feed};
use crate::program::{Provision, Variables};

/// Tells the variables anew with each new token.
#[derive(Debug)]
pub struct ForChild {
    content: Content,
    host: ServiceHost,
    /// The platform's own address.
    platform: String,
    publisher: Publisher<Provision>,
}

impl ForChild {
    /// The variables for `host` and where they are read. Those of a token that is there already are there at once.
    pub fn new(content: Content, host: ServiceHost, platform: String) -> (Self, Feed<Provision>) {
        let (publisher, feed) = feed(NONE);
        let mut this = Self { content, host, platform, publisher };
        this.tell();
        (this, feed)
    }

    /// Tells what there is, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        while let Some(true) = stop.run_until_cancelled(self.content.changed()).await {
            self.tell();
        }
        stop.cancelled().await;
    }

    fn tell(&mut self) {
        let found = self.content.token(&self.platform).map(|(address, token)| variables(&self.host, &address, &token));
        let state = match found {
            Some(found) if !found.is_empty() => {
                let mut all = Variables::default();
                for (name, value) in found {
                    all.set(name, value);
                }
                State::Serving(Provision::Variables(all).into())
            }
            _ => State::None { reason: NONE.into(), retry_after: LATER },
        };
        self.publisher.publish(state, None);
    }
}

const NONE: &str = "there is no token of the platform yet";
const LATER: Duration = Duration::from_secs(5);
