//! Verification of service accounts of Kubernetes by the answer to a `TokenReview`
//! (kubernetes.io, "Kubernetes API Reference", `authentication.k8s.io/v1`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::azure_identity::VerifiedFacts;

/// Service accounts that a role accepts. An empty list accepts all; otherwise one entry must be equal, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubernetesBounds {
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Service accounts, as `NAMESPACE/NAME`.
    pub service_accounts: Vec<String>,
}

impl KubernetesBounds {
    /// Returns the error text if the bounds are invalid.
    pub fn validation_error(&self) -> Option<&'static str> {
        let Self { namespaces, service_accounts } = self;
        if namespaces.is_empty() && service_accounts.is_empty() {
            Some("the role has no bounds and would admit every pod of the cluster; set service_accounts")
        } else if namespaces.iter().any(|name| !is_label(name)) {
            Some("an entry of namespaces is not the name of a namespace; write each in full, without \"*\"")
        } else if service_accounts.iter().any(|name| !is_account(name)) {
            Some("an entry of service_accounts is not NAMESPACE/NAME; write both in full, without \"*\"")
        } else {
            None
        }
    }
}

/// Name of a namespace (RFC 1123 label).
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Name of a service account (RFC 1123 subdomain) with its namespace.
fn is_account(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(namespace, name)| is_label(namespace) && name.len() <= 253 && name.split('.').all(is_label))
}

/// Error of verifying a service account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubernetesError {
    /// The cluster does not know the token, or it has ended.
    #[error("lookup failed: the cluster does not accept the service account's token: {0}")]
    NotAuthenticated(String),
    /// The token is for another audience.
    #[error("the token is for another audience than {expected:?}")]
    Audience {
        /// Accepted audience.
        expected: String,
    },
    /// The user is no service account.
    #[error("lookup failed: the token is not of a service account")]
    NoServiceAccount,
    /// The namespace is not in the bound list.
    #[error("namespace not authorized")]
    Namespace,
    /// The service account is not in the bound list.
    #[error("service account name not authorized")]
    ServiceAccount,
    /// The API server cannot be asked, does not permit it, or fails.
    #[error("lookup failed: {0}")]
    Unavailable(String),
}

/// Answer to a `TokenReview`.
#[derive(Debug, Deserialize)]
pub(crate) struct TokenReview {
    status: ReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    authenticated: bool,
    audiences: Vec<String>,
    error: String,
    user: ReviewedUser,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReviewedUser {
    username: String,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

/// Most characters of the cluster's words in a message.
const MAX_SHOWN: usize = 200;

impl TokenReview {
    /// Parses an answer; `None` if it is none.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Verifies a login against the bounds of a role. All facts are the cluster's.
    pub(crate) fn verify(&self, audience: &str, bounds: &KubernetesBounds) -> Result<VerifiedFacts, KubernetesError> {
        let ReviewStatus { authenticated, audiences, error, user } = &self.status;
        if !authenticated || !error.is_empty() {
            let reason = if error.is_empty() { "it names no reason" } else { error };
            let reason = reason.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
            return Err(KubernetesError::NotAuthenticated(reason));
        }
        // An API server that does not know of audiences names none: its answer says nothing about whom the token is for.
        if !audiences.iter().any(|found| found == audience) {
            return Err(KubernetesError::Audience { expected: audience.to_owned() });
        }
        let account = user.username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let (namespace, name) = account.ok_or(KubernetesError::NoServiceAccount)?;
        let full = format!("{namespace}/{name}");
        if !is_account(&full) {
            return Err(KubernetesError::NoServiceAccount);
        }
        if !bounds.namespaces.is_empty() && !bounds.namespaces.iter().any(|bound| bound == namespace) {
            return Err(KubernetesError::Namespace);
        }
        if !bounds.service_accounts.is_empty() && !bounds.service_accounts.contains(&full) {
            return Err(KubernetesError::ServiceAccount);
        }
        // Last: without bounds no check above could reject.
        if bounds.validation_error().is_some() {
            return Err(KubernetesError::ServiceAccount);
        }
        let extra = |key: &str| user.extra.get(key).and_then(|values| values.first()).map(String::as_str);
        let facts = [
            ("principal_id", Some(user.uid.as_str())),
            ("service_account_namespace", Some(namespace)),
            ("service_account_name", Some(name)),
            ("pod_name", extra("authentication.kubernetes.io/pod-name")),
            ("pod_uid", extra("authentication.kubernetes.io/pod-uid")),
            ("node_name", extra("authentication.kubernetes.io/node-name")),
        ];
        let facts =
            facts.into_iter().filter_map(|(key, value)| Some((key, value?))).filter(|(_, value)| !value.is_empty());
        Ok(facts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const AUDIENCE: &str = "https://acl.example.com";

    fn answer() -> Value {
        json!({
            "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
            "spec": { "token": "canary", "audiences": [AUDIENCE] },
            "status": {
                "authenticated": true, "audiences": [AUDIENCE],
                "user": {
                    "username": "system:serviceaccount:shop:web.front", "uid": "u-1",
                    "groups": ["system:serviceaccounts", "system:authenticated"],
                    "extra": { "authentication.kubernetes.io/pod-name": ["web-0"] },
                },
            },
        })
    }

    fn verify(answer: &Value, bounds: &KubernetesBounds) -> Result<VerifiedFacts, String> {
        let review = TokenReview::parse(answer.to_string().as_bytes()).ok_or("no review")?;
        review.verify(AUDIENCE, bounds).map_err(|error| error.to_string())
    }

    fn bounds(namespaces: &[&str], service_accounts: &[&str]) -> KubernetesBounds {
        let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
        KubernetesBounds { namespaces: list(namespaces), service_accounts: list(service_accounts) }
    }

    #[test]
    fn a_service_account_is_admitted_by_bounds_that_all_fit() {
        let check = |namespaces: &[&str], accounts: &[&str], expected: &str| {
            let error = verify(&answer(), &bounds(namespaces, accounts)).err().unwrap_or_default();
            assert!(
                error.contains(expected) && error.is_empty() == expected.is_empty(),
                "{namespaces:?} {accounts:?}: {error}"
            );
        };
        check(&["shop"], &[], "");
        check(&[], &["shop/web.front"], "");
        check(&["other", "shop"], &["shop/other", "shop/web.front"], "");
        check(&["sho"], &[], "namespace not authorized");
        check(&[], &["shop/web"], "service account name not authorized");
        check(&[], &["other/web.front"], "service account name not authorized");
        check(&["other"], &["shop/web.front"], "namespace not authorized");
        check(&[], &[], "service account name not authorized");
        let facts = verify(&answer(), &bounds(&["shop"], &[])).unwrap();
        let expected = [
            ("pod_name", "web-0"),
            ("principal_id", "u-1"),
            ("service_account_name", "web.front"),
            ("service_account_namespace", "shop"),
        ];
        assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn an_answer_must_name_a_service_account_for_this_audience() {
        let check = |pointer: &str, value: Value, expected: &str| {
            let mut answer = answer();
            *answer.pointer_mut(pointer).unwrap() = value;
            let error = verify(&answer, &bounds(&["shop"], &[])).err().unwrap_or_default();
            assert!(error.contains(expected) && !error.contains("canary"), "{pointer}: {error}");
        };
        check("/status/authenticated", json!(false), "does not accept");
        check("/status", json!({ "error": "[invalid bearer token]" }), "invalid bearer token");
        check("/status/audiences", json!([]), "another audience");
        check("/status/audiences", json!(["https://kubernetes.default.svc"]), "another audience");
        check("/status/user/username", json!("admin"), "not of a service account");
        check("/status/user/username", json!("system:serviceaccount:shop"), "not of a service account");
        check("/status/user/username", json!("system:serviceaccount:shop:a:b"), "not of a service account");
        check("/status/user/username", json!("system:serviceaccount::web"), "not of a service account");
        check("/status/authenticated", json!("true"), "no review");
        check("/status", Value::Null, "no review");
    }

    #[test]
    fn bounds_name_namespaces_and_accounts_in_full() {
        let check = |namespaces: &[&str], accounts: &[&str], expected: Option<&str>| {
            let error = bounds(namespaces, accounts).validation_error();
            assert_eq!(error.is_some(), expected.is_some(), "{namespaces:?} {accounts:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{error:?}");
        };
        check(&["a"], &[], None);
        check(&[], &["a/b.c"], None);
        check(&[], &[], Some("every pod of the cluster"));
        check(&["*"], &[], Some("namespaces"));
        check(&[""], &[], Some("namespaces"));
        check(&["A"], &[], Some("namespaces"));
        check(&[], &["web"], Some("NAMESPACE/NAME"));
        check(&[], &["a/*"], Some("NAMESPACE/NAME"));
        check(&[], &["a/b/c"], Some("NAMESPACE/NAME"));
        check(&[], &["a/"], Some("NAMESPACE/NAME"));
    }
}
