//! A key-value store with versions (version 2). Time is passed in.

use std::collections::BTreeMap;

use keyward_machine::clock::ClockReading;
use serde_json::{Map, Value, json};

use super::names_below;
use crate::secrets::tokens::rfc3339;

/// Secrets by path, and the settings of the store.
#[derive(Debug, Default)]
pub(super) struct Store {
    secrets: BTreeMap<String, Secret>,
    settings: Settings,
}

/// Settings of a store, or of one secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Number of versions to keep; 0 for the server's default.
    pub(super) max_versions: u64,
    /// True if a write must name the version that it replaces.
    pub(super) cas_required: bool,
}

#[derive(Debug)]
struct Secret {
    versions: BTreeMap<u64, Version>,
    current: u64,
    created: ClockReading,
    updated: ClockReading,
    settings: Settings,
    custom: Value,
    /// Oldest version that is kept; 0 until one has been removed.
    oldest: u64,
}

#[derive(Debug)]
struct Version {
    /// `None` once destroyed.
    value: Option<Value>,
    created: ClockReading,
    deleted: Option<ClockReading>,
}

/// Result of a read.
#[derive(Debug, PartialEq)]
pub(super) enum ReadOutcome {
    Nothing,
    /// A version whose value is deleted or destroyed.
    Gone(Value),
    Here(Value),
}

/// Reason why a write is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteRejection {
    /// It does not name the version to replace.
    CasMissing,
    /// It names another version than the current one.
    CasWrong,
}

impl WriteRejection {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::CasMissing => "check-and-set parameter required for this call",
            Self::CasWrong => "check-and-set parameter did not match the current version",
        }
    }
}

impl Store {
    /// Returns a version of a secret (0: the newest): the `data` part of the response.
    pub(super) fn read(&self, path: &str, version: u64) -> ReadOutcome {
        let Some(secret) = self.secrets.get(path) else { return ReadOutcome::Nothing };
        let number = if version == 0 { secret.current } else { version };
        let Some(version) = secret.versions.get(&number) else { return ReadOutcome::Nothing };
        let metadata = version.metadata(number, &secret.custom);
        match &version.value {
            Some(value) if version.deleted.is_none() => {
                ReadOutcome::Here(json!({ "data": value, "metadata": metadata }))
            }
            _ => ReadOutcome::Gone(json!({ "data": null, "metadata": metadata })),
        }
    }

    /// Adds a version. `cas` is the version to replace, 0 for none. Returns the `data` part of the response.
    pub(super) fn write(
        &mut self,
        path: &str,
        value: Value,
        cas: Option<u64>,
        now: ClockReading,
    ) -> Result<Value, WriteRejection> {
        let required = self.settings.cas_required;
        let secret = self.secrets.get(path);
        match cas {
            Some(cas) if cas != secret.map_or(0, |secret| secret.current) => return Err(WriteRejection::CasWrong),
            None if required || secret.is_some_and(|secret| secret.settings.cas_required) => {
                return Err(WriteRejection::CasMissing);
            }
            _ => {}
        }
        let default_limit = self.settings.max_versions;
        let secret = self.secret(path, now);
        secret.current += 1;
        secret.updated = now;
        secret.versions.insert(secret.current, Version { value: Some(value), created: now, deleted: None });
        let limit =
            [secret.settings.max_versions, default_limit, KEPT].into_iter().find(|limit| *limit > 0).unwrap_or(KEPT);
        let first = secret.current.saturating_sub(limit - 1);
        let removes = secret.versions.keys().next().is_some_and(|oldest| *oldest < first);
        secret.versions = secret.versions.split_off(&first);
        if removes {
            secret.oldest = first;
        }
        let version = &secret.versions[&secret.current];
        Ok(version.metadata(secret.current, &secret.custom))
    }

    /// Adds a version that merges `change` into the newest one; null removes a member (RFC 7386). `None` if there is no
    /// newest version.
    pub(super) fn patch(
        &mut self,
        path: &str,
        change: &Value,
        cas: Option<u64>,
        now: ClockReading,
    ) -> Option<Result<Value, WriteRejection>> {
        let ReadOutcome::Here(mut current) = self.read(path, 0) else { return None };
        let mut value = current["data"].take();
        merge(&mut value, change);
        let cas = cas.or_else(|| self.secrets.get(path).map(|secret| secret.current));
        Some(self.write(path, value, cas, now))
    }

    /// Deletes versions, by default the newest; they can be undeleted.
    pub(super) fn delete(&mut self, path: &str, versions: &[u64], now: ClockReading) {
        self.each(path, versions, |version| version.deleted = version.deleted.or(Some(now)));
    }

    pub(super) fn undelete(&mut self, path: &str, versions: &[u64]) {
        self.each(path, versions, |version| version.deleted = None);
    }

    /// Destroys the values of versions for good.
    pub(super) fn destroy(&mut self, path: &str, versions: &[u64]) {
        self.each(path, versions, |version| version.value = None);
    }

    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        names_below(self.secrets.keys(), folder)
    }

    /// Returns the metadata of a secret and its versions: the `data` part of the response.
    pub(super) fn metadata(&self, path: &str) -> Option<Value> {
        let secret = self.secrets.get(path)?;
        let versions: Map<String, Value> =
            secret.versions.iter().map(|(number, version)| (number.to_string(), version.state())).collect();
        Some(json!({
            "cas_required": secret.settings.cas_required, "created_time": rfc3339(secret.created.wall),
            "current_version": secret.current, "custom_metadata": secret.custom, "delete_version_after": "0s",
            "max_versions": secret.settings.max_versions,
            "oldest_version": secret.oldest,
            "updated_time": rfc3339(secret.updated.wall), "versions": versions,
        }))
    }

    /// Changes the settings of a secret, which need not exist yet; `None` leaves a setting.
    pub(super) fn change_metadata(&mut self, path: &str, change: Change, custom: Option<Value>, now: ClockReading) {
        let secret = self.secret(path, now);
        change.put(&mut secret.settings);
        if let Some(custom) = custom {
            secret.custom = custom;
        }
        secret.updated = now;
    }

    /// Deletes a secret with all its versions.
    pub(super) fn forget(&mut self, path: &str) {
        self.secrets.remove(path);
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings of the store.
    pub(super) fn change_settings(&mut self, change: Change) {
        change.put(&mut self.settings);
    }

    fn secret(&mut self, path: &str, now: ClockReading) -> &mut Secret {
        self.secrets.entry(path.to_owned()).or_insert_with(|| Secret {
            versions: BTreeMap::new(),
            current: 0,
            created: now,
            updated: now,
            settings: Settings::default(),
            custom: Value::Null,
            oldest: 0,
        })
    }

    fn each(&mut self, path: &str, versions: &[u64], mut change: impl FnMut(&mut Version)) {
        let Some(secret) = self.secrets.get_mut(path) else { return };
        let newest = [secret.current];
        for number in if versions.is_empty() { &newest } else { versions } {
            if let Some(version) = secret.versions.get_mut(number) {
                change(version);
            }
        }
    }
}

/// Changes to [`Settings`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change {
    pub(super) max_versions: Option<u64>,
    pub(super) cas_required: Option<bool>,
}

impl Change {
    fn put(self, settings: &mut Settings) {
        settings.max_versions = self.max_versions.unwrap_or(settings.max_versions);
        settings.cas_required = self.cas_required.unwrap_or(settings.cas_required);
    }
}

impl Version {
    fn metadata(&self, number: u64, custom: &Value) -> Value {
        let mut metadata = self.state();
        metadata["custom_metadata"] = custom.clone();
        metadata["version"] = number.into();
        metadata
    }

    fn state(&self) -> Value {
        json!({
            "created_time": rfc3339(self.created.wall),
            "deletion_time": self.deleted.map_or_else(String::new, |at| rfc3339(at.wall)),
            "destroyed": self.value.is_none(),
        })
    }
}

/// Default of the real server.
const KEPT: u64 = 10;

fn merge(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, change) in change {
        if change.is_null() {
            value.as_object_mut().map(|value| value.remove(name));
        } else {
            merge(&mut value[name], change);
        }
    }
}
