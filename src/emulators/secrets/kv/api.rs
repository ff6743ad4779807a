//! Handlers of the key-value stores.

use std::time::Duration;

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use serde_json::{Value, json};

use super::versioned::{Change, ReadOutcome, WriteRejection};
use super::{Namespace, Stores, plain};
use crate::secrets::faults::Wording;
use crate::secrets::go_json;
use crate::secrets::reply::{WrappableResponse, build_leased, empty, not_found_with_warning, refusal, success};
use crate::secrets::route::Verb;

/// A request to a store.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub verb: Verb,
    /// Path below the mount.
    pub path: &'a str,
    /// `?version=`; 0 is the newest.
    pub version: u64,
    pub body: Value,
    pub namespace: &'a str,
    pub now: ClockReading,
    pub wording: Wording,
}

impl Stores {
    /// Handles a request below `kv/`.
    pub(crate) fn plain(&self, call: Call<'_>) -> WrappableResponse {
        let mut all = self.namespaces.lock();
        let store = &mut all.entry(call.namespace.to_owned()).or_default().plain;
        // Not leased: the duration is only a hint when to read again.
        plain_response(store, call, plain::lease_duration)
    }

    /// Handles a request below `cubbyhole/`: the store of one token.
    pub(crate) fn cubbyhole(&self, token: &str, call: Call<'_>) -> WrappableResponse {
        let mut all = self.cubbyholes.lock();
        plain_response(all.entry(token.to_owned()).or_default(), call, |_| Duration::ZERO)
    }

    /// Handles a request below `secret/`.
    pub(crate) fn versioned(&self, call: Call<'_>) -> WrappableResponse {
        let mut all = self.namespaces.lock();
        let namespace = all.entry(call.namespace.to_owned()).or_default();
        let (part, path) = call.path.split_once('/').unwrap_or((call.path, ""));
        match part {
            "data" if path.is_empty() => not_found_with_warning(ROOT_OF_THE_MOUNT),
            "metadata" if path.is_empty() && call.verb != Verb::List => not_found_with_warning(ROOT_OF_THE_MOUNT),
            "data" => namespace.value(path, call),
            "metadata" => namespace.metadata(path, call),
            "config" => namespace.config(&call),
            "delete" | "undelete" | "destroy" if call.verb == Verb::Write => {
                let Some(versions) = versions(&call.body) else {
                    return refusal(StatusCode::BAD_REQUEST, "No version number provided");
                };
                let store = &mut namespace.versioned;
                match part {
                    "delete" => store.delete(path, &versions, call.now),
                    "undelete" => store.undelete(path, &versions),
                    _ => store.destroy(path, &versions),
                }
                WrappableResponse::Nothing
            }
            "delete" | "undelete" | "destroy" if path.is_empty() => not_found_with_warning(ROOT_OF_THE_MOUNT),
            _ => not_found_with_warning(&invalid_path(call.verb, call.wording)),
        }
    }
}

fn plain_response(
    store: &mut plain::Store,
    call: Call<'_>,
    lease_duration: fn(&Value) -> Duration,
) -> WrappableResponse {
    match call.verb {
        Verb::Read => store
            .read(call.path)
            .map_or_else(empty, |value| build_leased("", lease_duration(value), false, value.clone())),
        Verb::List => list_response(&store.list(call.path)),
        Verb::Write if call.body.as_object().is_none_or(serde_json::Map::is_empty) => {
            refusal(StatusCode::BAD_REQUEST, "missing data fields")
        }
        Verb::Write => {
            store.write(call.path, call.body);
            WrappableResponse::Nothing
        }
        Verb::Delete => {
            store.delete(call.path);
            WrappableResponse::Nothing
        }
        Verb::Patch => unsupported(),
    }
}

impl Namespace {
    fn value(&mut self, path: &str, mut call: Call<'_>) -> WrappableResponse {
        let store = &mut self.versioned;
        let cas = call.body.pointer("/options/cas").and_then(Value::as_u64);
        match call.verb {
            Verb::Read => match store.read(path, call.version) {
                ReadOutcome::Here(value) => success("data", value),
                ReadOutcome::Gone(value) => success("data", value).with_status(StatusCode::NOT_FOUND),
                ReadOutcome::Nothing => empty(),
            },
            Verb::Write if call.body.get("data").is_none_or(|value| !value.is_object()) => {
                refusal(StatusCode::BAD_REQUEST, "no data provided")
            }
            Verb::Write => {
                let mut value = call.body["data"].take();
                // The real store keeps the value as JSON of its own.
                go_json::round_numbers(&mut value);
                write_response(store.write(path, value, cas, call.now))
            }
            Verb::Patch => match call.body.get("data").filter(|value| value.is_object()) {
                Some(change) => store.patch(path, change, cas, call.now).map_or_else(empty, write_response),
                None => refusal(StatusCode::BAD_REQUEST, "no data provided"),
            },
            Verb::Delete => {
                store.delete(path, &[], call.now);
                WrappableResponse::Nothing
            }
            Verb::List => unsupported(),
        }
    }

    fn metadata(&mut self, path: &str, mut call: Call<'_>) -> WrappableResponse {
        let store = &mut self.versioned;
        match call.verb {
            Verb::Read => store.metadata(path).map_or_else(empty, |mut metadata| {
                if call.wording == Wording::OpenBao {
                    metadata["current_metadata_version"] = 0.into();
                    metadata["metadata_cas_required"] = false.into();
                }
                success("data", metadata)
            }),
            Verb::List => list_response(&store.list(path)),
            Verb::Write | Verb::Patch => {
                let custom = call.body.get_mut("custom_metadata").map(Value::take);
                store.change_metadata(path, change(&call.body), custom, call.now);
                WrappableResponse::Nothing
            }
            Verb::Delete => {
                store.forget(path);
                WrappableResponse::Nothing
            }
        }
    }

    fn config(&mut self, call: &Call<'_>) -> WrappableResponse {
        match call.verb {
            Verb::Read => {
                let settings = self.versioned.settings();
                let mut settings = json!({
                    "max_versions": settings.max_versions, "cas_required": settings.cas_required,
                    "delete_version_after": "0s",
                });
                if call.wording == Wording::OpenBao {
                    settings["metadata_cas_required"] = false.into();
                }
                success("data", settings)
            }
            Verb::Write => {
                self.versioned.change_settings(change(&call.body));
                WrappableResponse::Nothing
            }
            _ => unsupported(),
        }
    }
}

fn write_response(written: Result<Value, WriteRejection>) -> WrappableResponse {
    match written {
        Ok(metadata) => success("data", metadata),
        Err(refused) => refusal(StatusCode::BAD_REQUEST, refused.text()),
    }
}

fn list_response(names: &[String]) -> WrappableResponse {
    if names.is_empty() { empty() } else { success("data", json!({ "keys": names })) }
}

/// Warning of a store with versions about its folders themselves.
const ROOT_OF_THE_MOUNT: &str = "Non-listing operations on the root of a K/V v2 mount are not supported.";

/// Warning of a store with versions about a path outside its folders, such as one without `data/`.
fn invalid_path(verb: Verb, wording: Wording) -> String {
    let command = match verb {
        Verb::Read => "get",
        Verb::List => "list",
        Verb::Write => "put",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
    };
    let (client, program) = match wording {
        Wording::OpenBao => ("OpenBao", "bao"),
        Wording::Vault => ("Vault", "vault"),
    };
    format!(
        "Invalid path for a versioned K/V secrets engine. See the API docs for the appropriate API endpoints to use. \
         If using the {client} CLI, use '{program} kv {command}' for this operation."
    )
}

fn unsupported() -> WrappableResponse {
    refusal(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation")
}

fn change(body: &Value) -> Change {
    Change {
        max_versions: body.get("max_versions").and_then(Value::as_u64),
        cas_required: body.get("cas_required").and_then(Value::as_bool),
    }
}

/// Parses version numbers, which some clients send as strings. `None` if there are none.
fn versions(body: &Value) -> Option<Vec<u64>> {
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let versions: Vec<u64> = body.get("versions")?.as_array()?.iter().filter_map(number).collect();
    (!versions.is_empty()).then_some(versions)
}
