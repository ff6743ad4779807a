//! Paths of key-value version 2 that are written without `data/` or `metadata/`, as the clients of Vault and OpenBao take them.
//!
//! The server is asked for the mount of a path only after a request that failed as such a path does.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;

use super::{CallError, SecretOp, SecretRequest, SecretResponse, ServerClient, TokenVerdict, parse_response};
use crate::token::ClientToken;

/// Paths whose mount a client has asked for. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct KvMounts(Arc<Mutex<BTreeMap<Place, Asked>>>);

/// Namespace, path without its query, and whether it is listed.
type Place = (Option<String>, String, bool);

#[derive(Debug, Default)]
struct Asked {
    /// The mount of a path that lacks its segment, with a slash at the end.
    mount: Option<String>,
    /// Number of failures for which the server might have been asked.
    failures: u32,
}

fn place(namespace: Option<&str>, request: &SecretRequest) -> Place {
    (namespace.map(str::to_owned), path_only(&request.path).to_owned(), request.op == SecretOp::List)
}

fn path_only(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

impl KvMounts {
    fn find(&self, namespace: Option<&str>, request: &SecretRequest) -> Option<String> {
        self.0.lock().get(&place(namespace, request))?.mount.clone()
    }

    /// Records the mount of a path that lacks its segment; with `None`, that another engine may be there by now.
    fn record(&self, namespace: Option<&str>, request: &SecretRequest, mount: Option<&str>) {
        let mut asked = self.0.lock();
        asked.insert(place(namespace, request), Asked { mount: mount.map(str::to_owned), failures: 0 });
    }

    /// Returns true if the server shall be asked for the mount of a path: after its first failure, and then ever more rarely,
    /// as a path that is denied stays so.
    fn may_ask(&self, namespace: Option<&str>, request: &SecretRequest) -> bool {
        let mut asked = self.0.lock();
        if asked.len() >= MAX_PATHS {
            asked.clear();
        }
        let failures = &mut asked.entry(place(namespace, request)).or_default().failures;
        *failures = failures.saturating_add(1);
        failures.is_power_of_two()
    }
}

/// A template may compute its paths from the time.
const MAX_PATHS: usize = 1000;

/// True for a path below a mount, and for the mount itself.
fn is_below(path: &str, mount: &str) -> bool {
    path.starts_with(mount) || path == mount.trim_end_matches('/')
}

/// Inserts `data/`, or for a list `metadata/`, after the mount, unless the path has it.
fn insert_segment(request: &SecretRequest, mount: &str) -> SecretRequest {
    let (path, query) = match request.path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (request.path.as_str(), String::new()),
    };
    let (segment, others): (_, &[&str]) = match request.op {
        SecretOp::List => ("metadata", &[]),
        // Vault's `kv` commands and consul-template take these as they are.
        _ => ("data", &["metadata", "subkeys"]),
    };
    let rest = path.strip_prefix(mount).unwrap_or_default();
    let first = rest.split_once('/').map(|(first, _)| first);
    let has_segment = first.is_some_and(|first| first == segment || others.contains(&first));
    if has_segment || request.op == SecretOp::List && rest == segment {
        return request.clone();
    }
    let below = if rest.is_empty() { String::new() } else { format!("/{rest}") };
    SecretRequest { path: format!("{mount}{segment}{below}{query}"), op: request.op.clone() }
}

/// Returns the path of a secret's metadata. The path of the request may lack `data/`.
fn metadata_path(request: &SecretRequest, mount: &str) -> String {
    let path = insert_segment(request, mount).path;
    let below = path.strip_prefix(mount).and_then(|rest| rest.strip_prefix("data/")).unwrap_or_default();
    format!("{mount}metadata/{below}")
}

impl ServerClient {
    /// Reads a path, lists it, or writes fields to it. A path of key-value version 2 may lack `data/` or `metadata/`.
    pub async fn request_secret(
        &self,
        token: Option<&ClientToken>,
        request: &SecretRequest,
        namespace: Option<&str>,
    ) -> Result<SecretResponse, CallError> {
        if let Some(mount) = self.kv_mounts.find(namespace, request) {
            let result = self.send_to_mount(token, request, &mount, namespace).await;
            if matches!(result, Err(CallError::Status { status: 404, .. })) {
                self.kv_mounts.record(namespace, request, None);
            }
            return result;
        }
        let error = match self.send_secret_request(token, request, false, namespace).await {
            Err(error) if may_lack_segment(&error, request) => error,
            result => return result,
        };
        if !self.kv_mounts.may_ask(namespace, request) {
            return Err(error);
        }
        match self.find_kv_mount(token, request, namespace).await {
            Some(mount) if insert_segment(request, &mount) != *request || error_lacks_data(&error) => {
                self.kv_mounts.record(namespace, request, Some(&mount));
                self.send_to_mount(token, request, &mount, namespace).await
            }
            _ => Err(error),
        }
    }

    /// Returns the path that a request would have on the server, with `data/` or `metadata/` for key-value version 2.
    pub async fn resolve_secret_path(
        &self,
        token: Option<&ClientToken>,
        request: &SecretRequest,
        namespace: Option<&str>,
    ) -> String {
        let mount = self.find_kv_mount(token, request, namespace).await;
        mount.map_or_else(|| request.path.clone(), |mount| insert_segment(request, &mount).path)
    }

    /// Returns the path of the metadata of a secret in key-value version 2; `None` for another engine, or if the server does not say.
    pub(crate) async fn versioned_metadata_path(
        &self,
        token: &ClientToken,
        request: &SecretRequest,
        namespace: Option<&str>,
    ) -> Option<String> {
        let mount = self.find_kv_mount(Some(token), request, namespace).await?;
        Some(metadata_path(request, &mount))
    }

    async fn send_to_mount(
        &self,
        token: Option<&ClientToken>,
        request: &SecretRequest,
        mount: &str,
        namespace: Option<&str>,
    ) -> Result<SecretResponse, CallError> {
        self.send_secret_request(token, &insert_segment(request, mount), true, namespace).await
    }

    /// Asks the server for the mount of a path (`GET sys/internal/ui/mounts/PATH`, which needs some right below the mount).
    /// Returns it if it is key-value version 2.
    async fn find_kv_mount(
        &self,
        token: Option<&ClientToken>,
        request: &SecretRequest,
        namespace: Option<&str>,
    ) -> Option<String> {
        let request_path = path_only(&request.path);
        let path = format!("v1/sys/internal/ui/mounts/{request_path}");
        let request = match token {
            Some(token) => self.with_token(Method::GET, &path, token, namespace),
            None => self.request(Method::GET, &path, namespace),
        };
        let response = self.send(request).await.ok()?;
        let none = keyward_machine::secret_string::SecretString::default();
        let response = parse_response::parse_json(&response, token.map_or(&none, ClientToken::secret)).ok()?;
        let data = response.get("data")?;
        let version = data.get("options")?.get("version").and_then(Value::as_str);
        let is_versioned = data.get("type").and_then(Value::as_str) == Some("kv") && version == Some("2");
        let mount = data.get("path").and_then(Value::as_str).filter(|_| is_versioned)?;
        // Of a mount in a namespace, the server may give the path with that.
        let mount = namespace.and_then(|namespace| mount.strip_prefix(namespace.trim_matches('/'))).unwrap_or(mount);
        let mount = format!("{}/", mount.trim_matches('/'));
        is_below(request_path, &mount).then_some(mount)
    }
}

/// Returns true for the failures of a path that lacks its segment: the engine warns of it, unless the policies, which are for
/// the other path, deny it first.
fn may_lack_segment(error: &CallError, request: &SecretRequest) -> bool {
    let has_segment = |name: &str| request.path.split('/').skip(1).any(|segment| segment == name);
    match error {
        CallError::Status { status: 404, errors, .. } => errors.iter().any(|error| error.contains(VERSIONED)),
        CallError::Status { status: 403, .. } => {
            error.verdict() == TokenVerdict::Denied && !has_segment("data") && !has_segment("metadata")
        }
        _ => matches!(request.op, SecretOp::Write(_)) && error_lacks_data(error),
    }
}

/// Returns true for the refusal of a write whose fields are not in `data`.
fn error_lacks_data(error: &CallError) -> bool {
    matches!(error, CallError::Status { status: 400, errors, .. } if errors.iter().any(|error| error.contains("no data provided")))
}

/// Part of the engine's warning, in Vault and OpenBao.
const VERSIONED: &str = "for a versioned K/V secrets engine";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_of_a_secret_is_beside_its_data() {
        let check = |path: &str, mount: &str, expected: &str| {
            assert_eq!(metadata_path(&SecretRequest::read(path), mount), expected, "{path}");
        };
        check("secret/data/web/db", "secret/", "secret/metadata/web/db");
        check("secret/web/db", "secret/", "secret/metadata/web/db");
        check("data/data/data/web", "data/data/", "data/data/metadata/web");
        check("secret/data/data/web", "secret/", "secret/metadata/data/web");
    }

    #[test]
    fn the_segment_is_inserted_after_the_mount() {
        let check = |op: SecretOp, path: &str, mount: &str, expected: &str| {
            let request = SecretRequest { path: path.to_owned(), op };
            assert_eq!(insert_segment(&request, mount).path, expected, "{path}");
        };
        let read = |path, mount, expected| check(SecretOp::Read, path, mount, expected);
        read("secret/app", "secret/", "secret/data/app");
        read("secret/a/b?version=2", "secret/", "secret/data/a/b?version=2");
        read("secret/data/app", "secret/", "secret/data/app");
        read("secret/metadata/app", "secret/", "secret/metadata/app");
        read("secret/subkeys/app", "secret/", "secret/subkeys/app");
        read("secret/data", "secret/", "secret/data/data");
        read("secret/database", "secret/", "secret/data/database");
        read("team/kv/app", "team/kv/", "team/kv/data/app");
        read("secret", "secret/", "secret/data");
        let list = |path, expected| check(SecretOp::List, path, "secret/", expected);
        list("secret", "secret/metadata");
        list("secret/apps", "secret/metadata/apps");
        list("secret/metadata", "secret/metadata");
        list("secret/metadata/apps", "secret/metadata/apps");
    }

    #[test]
    fn a_path_that_stays_denied_is_asked_for_ever_more_rarely() {
        let mounts = KvMounts::default();
        let app = SecretRequest::read("secret/app");
        let asked: Vec<_> = (1..=40).filter(|_| mounts.may_ask(None, &app)).collect();
        assert_eq!(asked, [1, 2, 4, 8, 16, 32]);
        assert!(mounts.may_ask(Some("team"), &app) && mounts.may_ask(None, &SecretRequest::read("secret/other")));
    }

    #[test]
    fn each_path_has_the_mount_that_was_found_for_it() {
        let mounts = KvMounts::default();
        let list = SecretRequest { path: "secret/app".to_owned(), op: SecretOp::List };
        mounts.record(Some("ns"), &SecretRequest::read("secret/app?version=1"), Some("secret/"));
        assert_eq!(mounts.find(Some("ns"), &SecretRequest::read("secret/app")).as_deref(), Some("secret/"));
        assert_eq!(
            (mounts.find(None, &SecretRequest::read("secret/app")), mounts.find(Some("ns"), &list)),
            (None, None)
        );
        // Its configuration is read by the path that has it.
        assert_eq!(mounts.find(Some("ns"), &SecretRequest::read("secret/config")), None);
    }
}
