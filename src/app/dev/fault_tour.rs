//! `keyward dev --once`: each fault, what a caller sees of it, and its end.

use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use keyward_config::Session;
use keyward_http::client::{Client, ServerAddress};

use super::faults::{Fault, FaultSwitch};
use super::tour::{read, read_json};
use super::{DevEndpoints, load, loopback_client};
use crate::{error_codes, one_shot_login};

/// Clients and options for observing faults.
struct FaultTour<'a> {
    switch: FaultSwitch<'a>,
    session: Session,
    agent: Client,
    /// Vault's API on the agent's socket.
    proxy: Client,
    gateway: Client,
    local_token: String,
}

/// Breaks and heals everything once. Returns the lines to print.
pub(super) async fn run(endpoints: &DevEndpoints) -> anyhow::Result<Vec<String>> {
    let sessions = load(endpoints)?.sessions;
    let tour = FaultTour {
        switch: FaultSwitch::new(endpoints)?,
        session: sessions.into_iter().find(|session| session.name == "workload").context("no session workload")?,
        agent: loopback_client(ServerAddress::Unix(endpoints.socket.clone()))?,
        proxy: loopback_client(ServerAddress::Unix(endpoints.vault.clone()))?,
        gateway: loopback_client(ServerAddress::Url(format!("http://{}", endpoints.gateway).parse()?))?,
        local_token: std::fs::read_to_string(&endpoints.gateway_token)
            .with_context(|| format!("cannot read {}", endpoints.gateway_token.display()))?,
    };
    let mut lines = Vec::new();
    for fault in Fault::ALL.into_iter().filter(|fault| endpoints.cloud.reason_against(*fault).is_none()) {
        tour.switch.start(fault).await?;
        lines.push(format!("broken: {}", fault.guide().broken));
        lines.push(format!("  {}", tour.observe_fault(fault).await?));
        tour.switch.heal(fault).await?;
        tour.log_in_again().await.with_context(|| format!("after `keyward dev heal {}`", fault.name()))?;
        lines.push("  healed: a login succeeds".to_owned());
    }
    Ok(lines)
}

impl FaultTour<'_> {
    /// Observes a fault as callers do; returns what they see.
    async fn observe_fault(&self, fault: Fault) -> anyhow::Result<String> {
        Ok(match fault {
            Fault::Server => {
                read_json(&self.agent, "agent/v1/token", &[("session", "workload")], None)
                    .await
                    .context("the token in an outage")?;
                let error = read_json(&self.proxy, "v1/secret/data/example", &[], None).await.err();
                format!("the token is still served; a call fails: {:#}", error.context("a call succeeded")?)
            }
            Fault::Cloud | Fault::Clock | Fault::Audience => {
                let error = one_shot_login::login(&self.session).await.err().context("a login succeeded")?;
                format!("a login fails: {}", error_codes::format(&error.into()))
            }
            Fault::Token => {
                read_json(&self.proxy, "v1/secret/data/example", &[], None)
                    .await
                    .context("a call with a dead token")?;
                "a call succeeds: keyward logged in and repeated it".to_owned()
            }
            Fault::Platform => {
                let request =
                    self.gateway.request(Method::GET, "api/v2/account/details").bearer_auth(self.local_token.trim());
                let healed = async {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    self.switch.heal(fault).await
                };
                let (response, healed) = tokio::join!(read(&self.gateway, request), healed);
                healed?;
                response.context("a call while the platform token is replaced")?;
                "a call through the gateway waits for the new platform token, and succeeds".to_owned()
            }
        })
    }

    /// Logs in once with the session's options, then makes the agent retry, which may be waiting for its backoff.
    async fn log_in_again(&self) -> anyhow::Result<()> {
        let logged_in = one_shot_login::login(&self.session).await?;
        logged_in.revoke().await.map_err(anyhow::Error::msg)?;
        let request = self.agent.request(Method::POST, "agent/v1/retry").header("x-vault-request", "true");
        read(&self.agent, request.query(&[("session", self.session.name.as_str())])).await.map(drop)
    }
}
