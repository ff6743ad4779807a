//! Calls of the agent of a running `keyward dev`: its status, and what makes it meet a fault, or its end, at once.

use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use keyward_http::client::{Client, ServerAddress};
use serde_json::Value;

use super::faults::Fault;
use super::tour::read_json;
use super::{DevEndpoints, loopback_client};

/// The agent of a running `keyward dev`, and its gateway.
#[derive(Debug)]
pub struct DevAgent<'a> {
    endpoints: &'a DevEndpoints,
    agent: Client,
    gateway: Client,
}

/// Time for a call that a fault makes hang.
const CALL_TIME: Duration = Duration::from_secs(25);

impl<'a> DevAgent<'a> {
    /// Must be called inside a runtime.
    pub fn new(endpoints: &'a DevEndpoints) -> anyhow::Result<Self> {
        let agent = loopback_client(ServerAddress::Unix(endpoints.socket.clone()))?;
        let gateway = loopback_client(ServerAddress::Url(format!("http://{}", endpoints.gateway).parse()?))?;
        Ok(Self { endpoints, agent, gateway })
    }

    /// Fetches the agent's status.
    pub async fn status(&self) -> anyhow::Result<Value> {
        read_json(&self.agent, "agent/v1/status", &[], None).await.context("the agent does not answer")
    }

    /// Fetches the generation of the token of session `workload`, which changes with each login; `None` without a token.
    pub async fn generation(&self) -> Option<String> {
        let token = read_json(&self.agent, "agent/v1/token", &[("session", "workload")], None).await.ok()?;
        token["generation"].as_str().map(str::to_owned)
    }

    /// Makes the agent meet a fault now, not at its next look-up or login. The calls fail: that is the fault.
    pub async fn meet(&self, fault: Fault) {
        match fault {
            Fault::Server | Fault::Token => self.post("check", "workload", &[]).await,
            Fault::Cloud | Fault::Clock | Fault::Audience => {
                let force = [("force", "true")];
                tokio::join!(self.post("retry", "instance", &force), self.post("retry", "workload", &force));
            }
            Fault::Platform => self.call_platform().await,
        }
    }

    /// Makes the agent notice the end of a fault now, not at its next try.
    pub async fn recover(&self, fault: Fault) {
        match fault {
            Fault::Server => {
                tokio::join!(self.post("retry", "workload", &[]), self.post("check", "workload", &[]));
            }
            Fault::Cloud | Fault::Clock | Fault::Audience => {
                tokio::join!(self.post("retry", "instance", &[]), self.post("retry", "workload", &[]));
            }
            // The agent has logged in by itself, and the gateway watches its file.
            Fault::Token | Fault::Platform => {}
        }
    }

    async fn post(&self, path: &str, session: &str, query: &[(&str, &str)]) {
        let request = self.agent.request(Method::POST, &format!("agent/v1/{path}"));
        let request = request.query(&[("session", session)]).query(query).header("x-vault-request", "true");
        // The status shows the outcome, also where the agent has had enough of such requests.
        let _ = self.agent.send_within(request, CALL_TIME).await;
    }

    /// Makes a call through the gateway, which waits for a new token while the platform rejects this one.
    async fn call_platform(&self) {
        let Ok(token) = std::fs::read_to_string(&self.endpoints.gateway_token) else { return };
        let request = self.gateway.request(Method::GET, "api/v2/account/details").bearer_auth(token.trim());
        let _ = self.gateway.send_within(request, CALL_TIME).await;
    }
}
