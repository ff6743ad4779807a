//! `keyward dev --once`: uses each part once and reports each step.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use keyward_http::client::{Client, ServerAddress};
use serde_json::Value;
use url::Url;

use super::{DevEndpoints, loopback_client};

/// Follows both identities from the cloud to a use of their tokens, through the same APIs as any tool. Returns a line for
/// each step.
pub(super) async fn run(endpoints: &DevEndpoints) -> anyhow::Result<Vec<String>> {
    let agent = loopback_client(ServerAddress::Unix(endpoints.socket.clone()))?;
    let mut lines = Vec::new();
    let mut tokens = Vec::new();
    for session in ["instance", "workload"] {
        let query = [("session", session), ("wait", "30s")];
        let response = read_json(&agent, "agent/v1/token", &query, None)
            .await
            .with_context(|| format!("no token for session {session}"))?;
        let policies = response["policies"].to_string();
        let expires = response["expires_at"].as_str().unwrap_or("never").to_owned();
        lines.push(format!("session {session}: logged in; policies {policies}; the token ends {expires}"));
        tokens.push(response["token"].as_str().context("the response holds no token")?.to_owned());
    }
    let [instance, workload] = tokens.as_slice() else { anyhow::bail!("there are not two tokens") };
    let acl = loopback_client(ServerAddress::Url(Url::parse(&endpoints.acl)?))?;
    let this = read_json(&acl, "v1/acl/token/self", &[], Some(instance)).await.context("the ACL server")?;
    lines.push(format!(
        "the ACL server knows the first as {} of auth method {}",
        this["AccessorID"].as_str().unwrap_or("?"),
        this["AuthMethod"].as_str().unwrap_or("?")
    ));
    let secrets = loopback_client(ServerAddress::Url(Url::parse(&endpoints.secrets)?))?;
    let secret =
        read_json(&secrets, "v1/secret/data/example", &[], Some(workload)).await.context("the emulated Vault")?;
    lines.push(format!("the emulated Vault reads with the second: {}", secret["data"]["data"]));
    let proxy = loopback_client(ServerAddress::Unix(endpoints.vault.clone()))?;
    read_json(&proxy, "v1/secret/data/example", &[], None).await.context("Vault's API on the agent's socket")?;
    lines.push("the agent's socket serves the same secret to a caller without a token".to_owned());
    let sink = endpoints.dir.join("instance.token");
    // Callers get a token before the disk has it.
    read_once(&sink, |text| text == instance).await?;
    lines.push(format!("the sink {} holds the first", sink.display()));
    let greeting = read_once(&endpoints.dir.join("greeting.conf"), |_| true).await?;
    lines.push(format!("a template of that secret is rendered: {}", greeting.trim()));
    let local = std::fs::read_to_string(&endpoints.gateway_token)
        .with_context(|| format!("cannot read {}", endpoints.gateway_token.display()))?;
    let gateway = loopback_client(ServerAddress::Url(Url::parse(&format!("http://{}", endpoints.gateway))?))?;
    let request = gateway.request(Method::GET, "api/v2/account/details").bearer_auth(local.trim());
    let account = read(&gateway, request).await.context("the gateway")?;
    let name = account.pointer("/data/attributes/username").and_then(Value::as_str).unwrap_or("?");
    lines.push(format!("the emulated HCP Terraform authenticates the gateway's calls as its user {name}"));
    Ok(lines)
}

/// Returns the content of a file once `accepts` returns true; waits for up to ten seconds.
async fn read_once(file: &Path, accepts: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    for _ in 0..100 {
        match std::fs::read_to_string(file) {
            Ok(text) if accepts(&text) => return Ok(text),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    anyhow::bail!("{} is not written", file.display())
}

/// Reads a path as JSON, with a token if one is given.
pub(super) async fn read_json(
    client: &Client,
    path: &str,
    query: &[(&str, &str)],
    token: Option<&str>,
) -> anyhow::Result<Value> {
    let mut request = client.request(Method::GET, path).query(query).header("x-vault-request", "true");
    if let Some(token) = token {
        request = request.header("x-vault-token", token);
    }
    read(client, request).await
}

/// Reads the JSON of a successful response.
pub(super) async fn read(client: &Client, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let response = client.send(request).await?;
    let text = String::from_utf8_lossy(&response.body);
    anyhow::ensure!(response.status.is_success(), "{} answers {}: {text}", client.server(), response.status);
    Ok(serde_json::from_str(&text)?)
}
