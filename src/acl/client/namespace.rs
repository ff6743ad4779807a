//! Namespaces.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::{Client, To};
use super::error::Error;
use super::link::Link;
use super::query::{Query, Reading};
use super::wire::{null_is_default, time};
use crate::acl::model::timestamp::Timestamp;

/// A namespace as the server tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Free text.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// What its tokens have without linking it.
    #[serde(
        rename = "ACLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "NamespaceDefaults::is_empty"
    )]
    pub acls: NamespaceDefaults,
    /// Whatever its owner wrote there.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// When it was marked for deletion; it is gone once all that lives in it is.
    #[serde(deserialize_with = "time", skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// The index at which it was made.
    pub create_index: u64,
    /// The index of its last change.
    pub modify_index: u64,
}

/// Policies and roles that count for each token of a namespace where nothing that the token links says anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceDefaults {
    /// Policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policy_defaults: Vec<Link>,
    /// Roles.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub role_defaults: Vec<Link>,
}

impl NamespaceDefaults {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.policy_defaults.is_empty() && self.role_defaults.is_empty()
    }
}

/// A namespace to be made, or what one becomes: an update replaces all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewNamespace {
    /// Its name: a label of a host name.
    pub name: String,
    /// Free text.
    pub description: String,
    /// What its tokens have without linking it.
    #[serde(rename = "ACLs", skip_serializing_if = "NamespaceDefaults::is_empty")]
    pub acls: NamespaceDefaults,
    /// Whatever its owner writes there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

impl From<&Namespace> for NewNamespace {
    fn from(namespace: &Namespace) -> Self {
        let Namespace { name, description, acls, meta, .. } = namespace.clone();
        Self { name, description, acls, meta }
    }
}

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: "calls for namespaces", since: Some("1.7.0") }
}

/// These calls are in no namespace themselves.
impl Client {
    /// Makes a namespace.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_namespace(&self, new: &NewNamespace) -> Result<Namespace, Error> {
        self.in_namespace(None).send_json(Method::PUT, &to(&["namespace"]), new).await
    }

    /// Reads a namespace.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_namespace(&self, name: &str, query: &Query) -> Result<Reading<Namespace>, Error> {
        self.in_namespace(None).get(&to(&["namespace", name]), &[], query).await
    }

    /// Replaces what may change in the namespace of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_namespace(&self, update: &NewNamespace) -> Result<Namespace, Error> {
        self.in_namespace(None).send_json(Method::PUT, &to(&["namespace", &update.name]), update).await
    }

    /// Marks a namespace for deletion; its data is removed in the background. `false`: there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_namespace(&self, name: &str) -> Result<bool, Error> {
        self.in_namespace(None).delete(&to(&["namespace", name])).await
    }

    /// Lists the namespaces that the token may see.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_namespaces(&self, query: &Query) -> Result<Reading<Vec<Namespace>>, Error> {
        self.in_namespace(None).get(&to(&["namespaces"]), &[], query).await
    }
}
