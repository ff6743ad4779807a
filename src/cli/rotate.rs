//! `keyward rotate`: another certificate of the running agent at once, through its local API.

use std::time::Duration;

use clap::Args;

use super::agent_client::{AgentAddress, AgentClient};
use super::agent_listener::RequiredListener;
use super::progress::ProgressLine;
use super::{Exit, print_line};

/// Make the running agent replace a certificate now.
#[derive(Debug, Args)]
pub(super) struct Rotate {
    /// Certificate to replace; required if there are several
    certificate: Option<String>,
    #[command(flatten)]
    at: AgentAddress,
}

impl Rotate {
    pub(super) fn run(self) -> Exit {
        let agent = match AgentClient::connect(&self.at, RequiredListener::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return exit,
        };
        let query: Vec<_> = self.certificate.iter().map(|name| ("certificate", name.as_str())).collect();
        let line = ProgressLine::start("waiting for the certificate");
        let response = agent.post("agent/v1/rotate", &query, ROTATION_TIME);
        drop(line);
        match agent.expect(response) {
            Ok(response) => {
                let text = |name: &str| response[name].as_str().unwrap_or("unknown").to_owned();
                let (name, serial, expires) = (text("certificate"), text("serial"), text("expires"));
                print_line(&format!("{name} has a new certificate: serial {serial}, ends at {expires}"));
                Exit::Ok
            }
            Err(exit) => exit,
        }
    }
}

/// Longer than the agent waits for a certificate.
const ROTATION_TIME: Duration = Duration::from_secs(35);
