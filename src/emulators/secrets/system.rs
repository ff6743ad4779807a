//! System endpoints: health, mounts, and capabilities of a token.

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use serde_json::{Map, Value, json};

use super::policies::{Policies, allow};
use super::reply::{WrappableResponse, refusal, success};
use super::route::Engine;
use super::tokens::rfc3339;

/// `sys/health`, `sys/seal-status`, `sys/init`.
pub(super) fn health(path: &str, now: ClockReading) -> WrappableResponse {
    let body = match path {
        "sys/init" => json!({ "initialized": true }),
        "sys/seal-status" => json!({
            "type": "emulated", "initialized": true, "sealed": false, "t": 1, "n": 1, "progress": 0,
            "version": VERSION, "storage_type": "inmem",
        }),
        _ => json!({
            "initialized": true, "sealed": false, "standby": false, "version": VERSION,
            "server_time": rfc3339(now.wall),
        }),
    };
    WrappableResponse::Json(StatusCode::OK, body)
}

/// `sys/mounts`, `sys/internal/ui/mounts`, `sys/internal/ui/mounts/PATH`.
pub(super) fn mounts(path: &str) -> WrappableResponse {
    let all = || -> Map<String, Value> {
        Engine::ALL.into_iter().map(|engine| (format!("{}/", engine.mount()), described(engine))).collect()
    };
    match path.strip_prefix("sys/internal/ui/mounts") {
        None => success("data", Value::Object(all())),
        Some("") => success("data", json!({ "secret": all(), "auth": {} })),
        Some(path) => {
            let path = path.trim_start_matches('/');
            let first = path.split('/').next().unwrap_or_default();
            match Engine::ALL.into_iter().find(|engine| engine.mount() == first) {
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

/// `sys/capabilities-self`: all of them, or none.
pub(super) fn capabilities(body: &Value, policies: &Policies, names: &[String]) -> WrappableResponse {
    let path = body.get("path").and_then(Value::as_str).map(str::to_owned);
    let many = body.get("paths").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let paths: Vec<String> = many.map(str::to_owned).chain(path).collect();
    let Some(first) = paths.first().cloned() else {
        return refusal(StatusCode::BAD_REQUEST, "paths must be supplied");
    };
    let root = names.iter().any(|name| name == "root");
    let mut body = Map::new();
    for path in paths {
        let may = if root {
            json!(["root"])
        } else if allow(policies, names, &path) {
            json!(["create", "delete", "list", "patch", "read", "update"])
        } else {
            json!(["deny"])
        };
        body.insert(path, may);
    }
    body.insert("capabilities".to_owned(), body[&first].clone());
    success("data", Value::Object(body))
}

fn described(engine: Engine) -> Value {
    let (kind, options) = match engine {
        Engine::Versioned => ("kv", json!({ "version": "2" })),
        Engine::Plain => ("kv", json!({ "version": "1" })),
        Engine::Terraform | Engine::Database | Engine::Pki => (engine.mount(), Value::Null),
    };
    json!({
        "type": kind, "options": options, "accessor": format!("{kind}_emulated"), "description": "emulated by keyward",
        "local": false, "seal_wrap": false, "external_entropy_access": false, "uuid": "",
        "config": { "default_lease_ttl": 0, "max_lease_ttl": 0, "force_no_cache": false },
    })
}

const VERSION: &str = "emulated by keyward";
