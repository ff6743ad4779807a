//! Callers of the gateway and of the ACL server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{client, now, send};
use super::ledger::Ledger;
use super::setup::{ACL, GATEWAY, METHOD};
use super::stage::Stage;

/// Pause between two calls of a caller: ten a second of the gateway, and as many of the ACL server.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the callers.
pub(super) fn start(stage: &Stage, ledger: &Arc<Ledger>, tasks: &mut JoinSet<()>) {
    tasks.spawn(call_gateway(stage.path("local.token"), Arc::clone(ledger)));
    tasks.spawn(call_acl(stage.acl_tokens.clone(), stage.acl_jwt.clone(), Arc::clone(ledger)));
}

/// Reads an organization with the local token.
async fn call_gateway(local: impl AsRef<Path>, ledger: Arc<Ledger>) {
    let http = client(None);
    let token = std::fs::read_to_string(local).unwrap();
    loop {
        tokio::time::sleep(PAUSE).await;
        let requested_at = now();
        let url = format!("http://{GATEWAY}/api/v2/organizations/example");
        let request = http.get(url).bearer_auth(token.trim());
        let Some(reply) = send(&ledger, "gateway", request, requested_at).await else { continue };
        match reply.body["data"]["id"].as_str() {
            Some("example") => ledger.good("gateway"),
            _ => ledger.wrong(format!("gateway: another answer: {}", reply.body)),
        }
    }
}

/// Each caller reads its own token; every tenth call logs in, reads that token and logs out.
async fn call_acl(tokens: Vec<(String, String)>, jwt: String, ledger: Arc<Ledger>) {
    let http = client(None);
    for number in 0_usize.. {
        tokio::time::sleep(PAUSE).await;
        if number % 10 == 0 {
            log_in(&http, &jwt, &ledger).await;
        } else {
            let (secret, accessor) = &tokens[number % tokens.len()];
            read_self(&http, secret, accessor, &ledger).await;
        }
    }
}

async fn read_self(http: &reqwest::Client, secret: &str, accessor: &str, ledger: &Ledger) {
    let requested_at = now();
    let request = http.get(format!("http://{ACL}/v1/acl/token/self")).header("x-consul-token", secret);
    let Some(reply) = send(ledger, "acl", request, requested_at).await else { return };
    if reply.body["AccessorID"] == accessor && reply.body["SecretID"] == secret {
        ledger.good("acl");
    } else {
        ledger.wrong(format!("acl: {accessor} got another token: {}", reply.body["AccessorID"]));
    }
}

async fn log_in(http: &reqwest::Client, jwt: &str, ledger: &Ledger) {
    let requested_at = now();
    let body = json!({"AuthMethod": METHOD, "BearerToken": jwt});
    let request = http.post(format!("http://{ACL}/v1/acl/login")).json(&body);
    let Some(reply) = send(ledger, "acl", request, requested_at).await else { return };
    let text = |name: &str| reply.body[name].as_str().unwrap_or_default();
    read_self(http, text("SecretID"), text("AccessorID"), ledger).await;
    let requested_at = now();
    let request = http.post(format!("http://{ACL}/v1/acl/logout")).header("x-consul-token", text("SecretID"));
    if let Some(reply) = send(ledger, "acl", request, requested_at).await {
        match reply.body {
            Value::Object(_) => ledger.wrong(format!("acl: a logout answered {}", reply.body)),
            _ => ledger.good("acl"),
        }
    }
}
