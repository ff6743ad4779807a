//! The agent, or the gateway where the configuration has one and no listener of the local API.

use serde_json::Value;

use crate::cli::Exit;
use crate::cli::agent_client::{AgentAddress, AgentClient, AgentError, REQUEST_TIMEOUT, RequiredListener};
#[cfg(feature = "gateway")]
use crate::cli::gateway::GatewayTarget;

/// A running process that has a status.
pub(super) enum StatusSource {
    Agent(AgentClient),
    #[cfg(feature = "gateway")]
    Gateway(GatewayTarget),
}

impl StatusSource {
    /// Finds the process; prints the error if that fails.
    pub(super) fn find(at: &AgentAddress) -> Result<Self, Exit> {
        #[cfg(feature = "gateway")]
        if let Some(files) = at.without_listener(RequiredListener::LocalApi) {
            return crate::cli::gateway::find(files).map(Self::Gateway);
        }
        AgentClient::connect(at, RequiredListener::LocalApi).map(Self::Agent)
    }

    /// Fetches the status.
    #[cfg_attr(not(feature = "gateway"), allow(clippy::unnecessary_wraps, reason = "the gateway can fail"))]
    pub(super) fn fetch(&self) -> anyhow::Result<Result<Value, AgentError>> {
        match self {
            Self::Agent(agent) => Ok(agent.explain(agent.get("agent/v1/status", &[], REQUEST_TIMEOUT))),
            #[cfg(feature = "gateway")]
            Self::Gateway(gateway) => gateway.fetch("/v1/platform/status", &[]),
        }
    }
}
