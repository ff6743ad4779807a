//! Parses an event of Vault's key-value stores, and finds the requests whose secret it is about. Pure.
//!
//! The form is that of `CloudEvents` in JSON (<https://developer.hashicorp.com/vault/docs/concepts/events>): `data.event_type` such as
//! `kv-v2/data-write`, `data.plugin_info.mount_path`, `data.namespace`, and in `data.event.metadata` the strings `path`, `data_path` (not in
//! all types), `modified`, `operation` and `current_version`. Vault 1.13 wrote `path` without the mount. Versions that are deleted, restored
//! or destroyed have paths such as `secret/destroy/app`, as Vault Proxy's updater of static secrets reads them too. An event holds no secret.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::{SecretOp, SecretRequest};

/// A change of a secret. It is a hint alone: the secret is read to see what has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretEvent {
    /// Namespace without slashes at its ends; empty for the root.
    namespace: String,
    /// Path of the mount without slashes at its ends.
    mount: String,
    /// Path of the secret below the mount, without a segment such as `data`.
    path: String,
    is_versioned: bool,
    /// The latest version of the secret after the change, if the event has it.
    pub(crate) version: Option<u64>,
}

/// Defect of a message that is no event. Holds none of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidEvent {
    /// It is not JSON, or not of the form of an event.
    #[error("it is not an event in JSON")]
    Form,
    /// It does not say which secret has changed.
    #[error("it lacks the mount or the path of the secret")]
    Path,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    event: Event<'a>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow, default)]
    plugin_info: Option<PluginInfo<'a>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    path: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data_path: Option<Cow<'a, str>>,
    #[serde(default)]
    modified: Option<Value>,
    #[serde(default)]
    current_version: Option<Value>,
}

#[derive(Deserialize)]
struct PluginInfo<'a> {
    #[serde(borrow, default)]
    mount_path: Option<Cow<'a, str>>,
}

impl SecretEvent {
    /// Parses a message; `Ok(None)` is an event that changes no secret of a key-value store.
    pub(crate) fn parse(message: &[u8]) -> Result<Option<Self>, InvalidEvent> {
        let Message { data } = serde_json::from_slice(message).map_err(|_| InvalidEvent::Form)?;
        let is_versioned = match data.event_type.split_once('/') {
            Some(("kv-v1", _)) => false,
            Some(("kv-v2", _)) => true,
            _ => return Ok(None),
        };
        let Some(metadata) = data.event.metadata else { return Err(InvalidEvent::Path) };
        let changes = match &metadata.modified {
            Some(Value::String(text)) => text == "true",
            Some(Value::Bool(modified)) => *modified,
            // Vault 1.13 does not say it, and has events of reads.
            None => !data.event_type.ends_with("-read"),
            Some(_) => false,
        };
        if !changes {
            return Ok(None);
        }
        let mount = data.plugin_info.and_then(|plugin| plugin.mount_path).unwrap_or_default();
        let mount = mount.trim_matches('/');
        let path = metadata.data_path.or(metadata.path).unwrap_or_default();
        if mount.is_empty() || path.is_empty() {
            return Err(InvalidEvent::Path);
        }
        let below = below_mount(&path, mount);
        let secret = if is_versioned { without_segment(below) } else { Some(below) };
        // The configuration of the mount has changed.
        let Some(secret) = secret.filter(|secret| !secret.is_empty()) else { return Ok(None) };
        Ok(Some(Self {
            namespace: data.namespace.as_deref().unwrap_or_default().trim_matches('/').to_owned(),
            mount: mount.to_owned(),
            path: secret.to_owned(),
            is_versioned,
            version: metadata.current_version.as_ref().and_then(number),
        }))
    }

    /// Returns the path for a log.
    pub(crate) fn describe(&self) -> String {
        format!("{}/{}", self.mount, self.path)
    }

    /// Returns true if a request reads the secret, with the namespace of the session. A path of version 2 may lack `data/`, and its
    /// metadata and keys change with it.
    pub(crate) fn concerns(&self, request: &SecretRequest, session_namespace: Option<&str>) -> bool {
        if request.op != SecretOp::Read || request.path.contains('?') {
            return false;
        }
        let Some(child) = self.namespace_below(session_namespace.unwrap_or_default().trim_matches('/')) else {
            return false;
        };
        let prefix = segments(child).chain(segments(&self.mount));
        let mut asked = segments(&request.path);
        for expected in prefix {
            if asked.next() != Some(expected) {
                return false;
            }
        }
        let rest: Vec<_> = asked.collect();
        let matches = |rest: &[&str]| segments(&self.path).eq(rest.iter().copied());
        match rest.split_first() {
            Some((&("data" | "metadata" | "subkeys"), below)) if self.is_versioned && matches(below) => true,
            _ => matches(&rest),
        }
    }

    /// Returns the event's namespace as the session sees it: below its own, or empty for that; `None` for one elsewhere.
    fn namespace_below(&self, session: &str) -> Option<&str> {
        // Before Vault 1.16 an event has no namespace, and is of that of the subscription.
        if session.is_empty() || self.namespace.is_empty() {
            return Some(&self.namespace);
        }
        let below = self.namespace.strip_prefix(session)?;
        if below.is_empty() { Some(below) } else { below.strip_prefix('/') }
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Returns a path without its mount, if it has it.
fn below_mount<'a>(path: &'a str, mount: &str) -> &'a str {
    let path = path.trim_matches('/');
    path.strip_prefix(mount).and_then(|below| below.strip_prefix('/')).unwrap_or(path)
}

/// Returns the path of a secret of version 2; `None` for paths of the mount itself.
fn without_segment(below: &str) -> Option<&str> {
    let (segment, secret) = below.split_once('/')?;
    matches!(segment, "data" | "metadata" | "delete" | "undelete" | "destroy" | "subkeys").then_some(secret)
}

/// Returns a version, which Vault writes as a string.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests;
