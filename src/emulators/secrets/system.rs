//! System endpoints: health, mounts, and capabilities of a token.

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use serde_json::{Map, Value, json};

use super::policies::{self, Policies};
use super::reply::{WrappableResponse, refusal, success, success_at_both_levels};
use super::route::Engine;
use super::tokens::unix_seconds;

/// `sys/health`, `sys/seal-status`, `sys/init`, `sys/leader`.
pub(super) fn health(path: &str, sealed: bool, now: ClockReading) -> WrappableResponse {
    let body = match path {
        "sys/init" => json!({ "initialized": true }),
        "sys/leader" => json!({ "ha_enabled": false }),
        "sys/seal-status" => named(
            sealed,
            json!({
                "type": "shamir", "initialized": true, "sealed": sealed, "t": 1, "n": 1, "progress": 0, "nonce": "",
                "recovery_seal": false, "version": VERSION, "commit_date": "", "migration": false,
                "storage_type": "inmem",
            }),
        ),
        _ => {
            let replication = if sealed { "unknown" } else { "disabled" };
            let body = named(
                sealed,
                json!({
                    "initialized": true, "sealed": sealed, "standby": sealed,
                    "replication_performance_mode": replication, "replication_dr_mode": replication,
                    "server_time_utc": unix_seconds(now.wall), "version": VERSION,
                }),
            );
            let status = if sealed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            return WrappableResponse::Json(status, body);
        }
    };
    WrappableResponse::Json(StatusCode::OK, body)
}

/// Adds the cluster, which a sealed server does not know.
fn named(sealed: bool, mut body: Value) -> Value {
    if !sealed {
        body["cluster_name"] = "emulated".into();
        body["cluster_id"] = UUID.into();
    }
    body
}

/// `sys/mounts`, `sys/internal/ui/mounts`, `sys/internal/ui/mounts/PATH`. `is_reached` returns true for mounts in which the
/// caller has a right; the latter two show no others.
pub(super) fn mounts(path: &str, is_reached: impl Fn(&str) -> bool) -> WrappableResponse {
    let describe_all = |is_shown: &dyn Fn(&str) -> bool| -> Map<String, Value> {
        let shown = Engine::ALL.into_iter().filter(|engine| is_shown(engine.mount()));
        shown.map(|engine| (format!("{}/", engine.mount()), described(engine))).collect()
    };
    match path.strip_prefix("sys/internal/ui/mounts") {
        None => success_at_both_levels(describe_all(&|_| true)),
        Some("") => success("data", json!({ "secret": describe_all(&is_reached), "auth": {} })),
        Some(path) => {
            let path = path.trim_start_matches('/');
            let first = path.split('/').next().unwrap_or_default();
            match Engine::ALL.into_iter().find(|engine| engine.mount() == first && is_reached(first)) {
                Some(engine) => {
                    let mut body = described(engine);
                    body["path"] = format!("{first}/").into();
                    success("data", body)
                }
                None => refusal(
                    StatusCode::FORBIDDEN,
                    &format!(
                        "preflight capability check returned 403, please ensure client's policies grant access to \
                         path \"{path}/\""
                    ),
                ),
            }
        }
    }
}

/// `sys/capabilities-self`.
pub(super) fn capabilities(body: &Value, policies: &Policies, names: &[String]) -> WrappableResponse {
    let path = body.get("path").and_then(Value::as_str).map(str::to_owned);
    let many = body.get("paths").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let paths: Vec<String> = many.map(str::to_owned).chain(path).collect();
    if paths.is_empty() {
        return refusal(StatusCode::BAD_REQUEST, "paths must be supplied");
    }
    let mut body: Map<String, Value> = paths
        .into_iter()
        .map(|path| {
            let own = json!(policies::capabilities(policies, names, &path));
            (path, own)
        })
        .collect();
    if body.len() == 1
        && let Some(capabilities) = body.values().next().cloned()
    {
        body.insert("capabilities".to_owned(), capabilities);
    }
    success_at_both_levels(body)
}

fn described(engine: Engine) -> Value {
    // That of the mount which every server in dev mode has.
    let description = if engine == Engine::Versioned { "key/value secret storage" } else { "" };
    let (kind, options) = match engine {
        Engine::Versioned => ("kv", json!({ "version": "2" })),
        Engine::Plain => ("kv", json!({ "version": "1" })),
        Engine::Terraform | Engine::Database | Engine::Pki | Engine::Ssh | Engine::Cubbyhole => {
            (engine.mount(), Value::Null)
        }
    };
    json!({
        "type": kind, "options": options, "accessor": format!("{kind}_emulated"), "description": description,
        "local": engine == Engine::Cubbyhole, "seal_wrap": false, "external_entropy_access": false, "uuid": UUID,
        "deprecation_status": "supported", "plugin_version": "", "running_plugin_version": VERSION, "running_sha256": "",
        "config": { "default_lease_ttl": 0, "max_lease_ttl": 0, "force_no_cache": false },
    })
}

const UUID: &str = "00000000-0000-0000-0000-000000000000";
const VERSION: &str = "emulated by keyward";
