//! Requests of the callers, and the sorting of their failures.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ledger::Ledger;

/// Limit of a caller; longer than any response of the program takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A client of a unix socket, or of TCP.
pub(super) fn client(socket: Option<&Path>) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().timeout(LIMIT).redirect(reqwest::redirect::Policy::none());
    let builder = builder.pool_idle_timeout(Duration::from_secs(20));
    let builder = match socket {
        Some(socket) => builder.unix_socket(socket),
        None => builder,
    };
    builder.build().unwrap()
}

/// A complete response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) cache: String,
    pub(super) body: Value,
}

/// Sends a request; counts it where there is no complete response, or an error with its reason, and returns only what remains to be checked.
pub(super) async fn send(
    ledger: &Ledger,
    class: &'static str,
    request: reqwest::RequestBuilder,
    requested_at: Instant,
) -> Option<Reply> {
    let reply = match whole(request).await {
        Ok(reply) => reply,
        Err(error) => {
            ledger.error(class, kind(&error), requested_at, &format!("{:#}", chain(&error)));
            return None;
        }
    };
    if reply.status < 400 {
        return Some(reply);
    }
    let reason = reply.body["errors"][0].as_str().map(str::to_owned).or_else(|| title(&reply.body));
    match reason {
        Some(reason) if !reason.is_empty() => {
            ledger.error(class, &reply.status.to_string(), requested_at, &reason);
        }
        _ => ledger.wrong(format!("{class} got {} without a reason: {}", reply.status, reply.body)),
    }
    None
}

/// Reason of a JSON:API error, or of a plain text.
fn title(body: &Value) -> Option<String> {
    let error = &body["errors"][0];
    let title = error["detail"].as_str().or_else(|| error["title"].as_str()).or_else(|| body.as_str());
    title.map(str::to_owned)
}

async fn whole(request: reqwest::RequestBuilder) -> Result<Reply, reqwest::Error> {
    let (client, request) = request.header("x-vault-request", "true").build_split();
    let request = request?;
    let again = (request.method() == reqwest::Method::GET).then(|| request.try_clone()).flatten();
    let response = match client.execute(request).await {
        // Listeners close a connection on which nothing was sent for 2 s, and clients keep such spares: HTTP/1.1 leaves it to them to
        // repeat a request that meets the close.
        Err(error) if kind(&error) == "cut off" => client.execute(again.ok_or(error)?).await?,
        other => other?,
    };
    let status = response.status().as_u16();
    let cache = response.headers().get("x-cache").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let bytes = response.bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
    Ok(Reply { status, cache, body })
}

/// Kind of a failure without a complete response.
fn kind(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer"
    } else if error.is_connect() {
        "unreachable"
    } else {
        "cut off"
    }
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "a process is watched, in real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}
