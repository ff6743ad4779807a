//! Calls of the tour, through the same APIs as any tool.

use http::Method;
use keyward_http::client::Client;
use serde_json::Value;

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
