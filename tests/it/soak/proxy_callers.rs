//! Callers of the API proxies: 200 requests a second, over all sessions.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Reply, client, now, send};
use super::ledger::Ledger;
use super::plan::{MAX_AGE, PROXY_RATE, RESPONSE, STALE, VAULT_SESSIONS, session};
use super::truth::Truth;

/// Most requests of a session that are under way.
const AT_ONCE: usize = 32;

const CLASS: &str = "proxy";

/// Starts the callers.
pub(super) fn start(folder: &Path, truth: &Truth, ledger: &Arc<Ledger>, tasks: &mut JoinSet<()>) {
    for number in 0..VAULT_SESSIONS {
        let name = session(number);
        let caller = Caller {
            http: client(Some(&folder.join(format!("{name}.sock")))),
            name,
            truth: truth.clone(),
            ledger: Arc::clone(ledger),
        };
        tasks.spawn(call(Arc::new(caller)));
    }
}

struct Caller {
    http: reqwest::Client,
    name: String,
    truth: Truth,
    ledger: Arc<Ledger>,
}

/// Sends requests at a constant rate, whatever becomes of the last ones.
async fn call(caller: Arc<Caller>) {
    let sessions = u32::try_from(VAULT_SESSIONS).unwrap();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) * sessions / PROXY_RATE);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    for number in 0_u64.. {
        ticks.tick().await;
        while calls.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let caller = Arc::clone(&caller);
        calls.spawn(async move {
            let _place = place;
            match number % 10 {
                0 => caller.look_up().await,
                1 => caller.borrow().await,
                2 => caller.read(false).await,
                _ => caller.read(true).await,
            }
        });
    }
}

impl Caller {
    async fn get(&self, path: &str, cached: bool) -> Option<(Reply, Instant)> {
        let mut request = self.http.get(format!("http://localhost/v1/{path}"));
        if !cached {
            request = request.header("cache-control", "no-cache");
        }
        let requested_at = now();
        Some((send(&self.ledger, CLASS, request, requested_at).await?, requested_at))
    }

    /// Reads the session's secret.
    async fn read(&self, cached: bool) {
        let Some((reply, requested_at)) = self.get(&format!("secret/data/{}/value", self.name), cached).await else {
            return;
        };
        // A response may be under way for as long as the server is given.
        let mut age = RESPONSE + Duration::from_secs(1) + self.ledger.slack();
        age += match reply.cache.as_str() {
            "STALE" => STALE,
            _ if cached => MAX_AGE,
            _ => Duration::ZERO,
        };
        let checked = self.truth.check(&self.name, &reply.body["data"]["data"], requested_at, age);
        self.judge(checked.map_err(|error| format!("{error} ({}, cached: {cached})", reply.cache)));
    }

    /// Asks for the session's own token: it is this session's, and not shown.
    async fn look_up(&self) {
        let Some((reply, _)) = self.get("auth/token/lookup-self", true).await else { return };
        let policies = reply.body["data"]["policies"].as_array();
        let own = policies.is_some_and(|list| list.iter().filter_map(Value::as_str).any(|policy| policy == self.name));
        let exposes_token = reply.body.to_string().contains("hvs.");
        let text = || format!("{} looked up another token, or it was shown: {}", self.name, reply.body);
        self.judge(if own && !exposes_token { Ok(()) } else { Err(text()) });
    }

    /// Asks for credentials with a lease, which the cache keeps.
    async fn borrow(&self) {
        let Some((reply, _)) = self.get(&format!("database/creds/{}", self.name), true).await else { return };
        let user = reply.body["data"]["username"].as_str().unwrap_or_default();
        let valid = reply.body["lease_duration"].as_u64().unwrap_or_default() > 0;
        let text = || format!("{} got credentials of another or of no use: {}", self.name, reply.body);
        self.judge(if user.contains(&self.name) && valid { Ok(()) } else { Err(text()) });
    }

    fn judge(&self, checked: Result<(), String>) {
        match checked {
            Ok(()) => self.ledger.good(CLASS),
            Err(error) => self.ledger.wrong(format!("{CLASS}: {error}")),
        }
    }
}
