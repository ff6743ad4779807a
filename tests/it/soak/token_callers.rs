//! Callers of the local API: each session's token, which must be its own and alive.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinSet;

use super::client::{client, now, send};
use super::ledger::Ledger;
use super::plan::{SESSIONS, VAULT_SESSIONS, session};
use super::setup::ACL;
use super::truth::Truth;

const CLASS: &str = "token";

/// Time after its end in which a token may be served.
pub(super) const OVER: Duration = Duration::from_secs(1);

/// Pause between two tokens of a caller.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts two callers, who ask for ten tokens a second each.
pub(super) fn start(folder: &Path, truth: &Truth, ledger: &Arc<Ledger>, tasks: &mut JoinSet<()>) {
    for first in [0, 1] {
        let http = client(Some(&folder.join("api.sock")));
        let (truth, ledger) = (truth.clone(), Arc::clone(ledger));
        tasks.spawn(async move {
            let direct = client(None);
            for number in (first..).step_by(2) {
                tokio::time::sleep(PAUSE).await;
                ask(&http, &direct, &session(number % SESSIONS), &truth, &ledger).await;
            }
        });
    }
}

async fn ask(http: &reqwest::Client, direct: &reqwest::Client, name: &str, truth: &Truth, ledger: &Ledger) {
    let requested_at = now();
    let request = http.get(format!("http://localhost/agent/v1/token?session={name}"));
    let Some(reply) = send(ledger, CLASS, request, requested_at).await else { return };
    let token = reply.body["token"].as_str().unwrap_or_default();
    let checked = if reply.body["session"] != name {
        Err(format!("{name} got another session's answer: {}", reply.body["session"]))
    } else if name < session(VAULT_SESSIONS).as_str() {
        truth.check_token(name, token, requested_at, OVER + ledger.slack()).await
    } else {
        check_acl(direct, &reply.body, requested_at).await
    };
    match checked {
        Ok(()) => ledger.good(CLASS),
        Err(error) => ledger.wrong(format!("{CLASS}: {error}")),
    }
}

/// Asks the ACL server for the token itself. It stops and is killed with the agent: then nothing is known.
async fn check_acl(direct: &reqwest::Client, body: &Value, requested_at: Instant) -> Result<(), String> {
    let url = format!("http://{ACL}/v1/acl/token/self");
    let request = direct.get(url).header("x-consul-token", body["token"].as_str().unwrap_or_default());
    let Ok(response) = request.send().await else { return Ok(()) };
    let status = response.status().as_u16();
    let text = response.text().await.unwrap_or_default();
    let own: Value = serde_json::from_str(&text).unwrap_or_default();
    let left = body["expires_at"].as_str().and_then(|text| left(text, requested_at.elapsed()));
    match status {
        200 if own["AccessorID"] == body["accessor"] => Ok(()),
        200 => Err(format!("the ACL server has another token: {}", own["AccessorID"])),
        503 => Ok(()),
        // It ended between the two calls.
        _ if left.is_some_and(|left| left < Duration::from_secs(2)) => Ok(()),
        _ => Err(format!("the ACL server does not know a served token: {status}: {text}")),
    }
}

/// Time from the call to the token's end.
fn left(end: &str, since: Duration) -> Option<Duration> {
    let end: SystemTime = OffsetDateTime::parse(end, &Rfc3339).ok()?.into();
    Some(end.duration_since(SystemTime::now()).unwrap_or_default() + since)
}
