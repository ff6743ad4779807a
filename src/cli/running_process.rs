//! Process that a command asks: the agent, or the gateway where the configuration has one and no listener for the command.

use std::time::Duration;

use serde_json::Value;

use super::Exit;
use super::agent_client::{AgentAddress, AgentClient, AgentError};
use super::agent_listener::RequiredListener;
#[cfg(feature = "gateway")]
use super::gateway::{self, GatewayTarget};

/// A running process that has a status.
pub(super) enum RunningProcess {
    Agent(AgentClient),
    #[cfg(feature = "gateway")]
    Gateway(GatewayTarget),
}

impl RunningProcess {
    /// Finds the process; prints the error if that fails.
    pub(super) fn find(at: &AgentAddress, required: RequiredListener<'_>) -> Result<Self, Exit> {
        #[cfg(feature = "gateway")]
        if let Some(files) = at.without_listener(required) {
            return gateway::find(files).map(Self::Gateway);
        }
        AgentClient::connect(at, required).map(Self::Agent)
    }

    /// Fetches the status, within `time`.
    #[cfg_attr(not(feature = "gateway"), allow(clippy::unnecessary_wraps, reason = "the gateway can fail"))]
    pub(super) fn fetch_status(&self, time: Duration) -> anyhow::Result<Result<Value, AgentError>> {
        match self {
            Self::Agent(agent) => Ok(agent.explain(agent.get("agent/v1/status", &[], time))),
            #[cfg(feature = "gateway")]
            Self::Gateway(gateway) => gateway.fetch_within("/v1/platform/status", &[], time),
        }
    }
}
