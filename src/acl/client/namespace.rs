//! Namespaces.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;
use super::go_json::{deserialize_time, null_is_default};
use super::link::AclLink;
use super::query::{QueryOptions, ReadResponse};
use crate::model::timestamp::Timestamp;

/// A namespace as the server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Namespace {
    /// Name, unique in its namespace.
    pub name: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Default policies and roles of its tokens.
    #[serde(
        rename = "ACLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "NamespaceDefaults::is_empty"
    )]
    pub acls: NamespaceDefaults,
    /// Metadata of the owner.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Time at which it was marked for deletion; it disappears once its records are deleted.
    #[serde(deserialize_with = "deserialize_time", skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// Index of its creation.
    pub(crate) create_index: u64,
    /// Index of its last change.
    pub(crate) modify_index: u64,
}

/// Default policies and roles of a namespace; they apply to each of its tokens where no linked rule matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceDefaults {
    /// Policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policy_defaults: Vec<AclLink>,
    /// Roles.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub role_defaults: Vec<AclLink>,
}

impl NamespaceDefaults {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.policy_defaults.is_empty() && self.role_defaults.is_empty()
    }
}

/// A namespace to be created, or the new content of one. An update replaces all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewNamespace {
    /// Name, a DNS label.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Default policies and roles of its tokens.
    #[serde(rename = "ACLs", skip_serializing_if = "NamespaceDefaults::is_empty")]
    pub acls: NamespaceDefaults,
    /// Metadata of the owner.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

impl From<&Namespace> for NewNamespace {
    fn from(namespace: &Namespace) -> Self {
        let Namespace { name, description, acls, meta, .. } = namespace.clone();
        Self { name, description, acls, meta }
    }
}

fn endpoint<'a>(path: &'a [&'a str]) -> Endpoint<'a> {
    Endpoint { path, name: "calls for namespaces", since: Some("1.7.0") }
}

/// Calls for namespaces, which are in no namespace themselves.
impl AclClient {
    /// Creates a namespace.
    pub async fn create_namespace(&self, new: &NewNamespace) -> Result<Namespace, AclClientError> {
        self.in_namespace(None).send_json(Method::PUT, &endpoint(&["namespace"]), new).await
    }

    /// Reads a namespace.
    pub async fn read_namespace(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<ReadResponse<Namespace>, AclClientError> {
        self.in_namespace(None).get(&endpoint(&["namespace", name]), &[], query).await
    }

    /// Replaces the mutable fields of the namespace of that name.
    pub async fn update_namespace(&self, update: &NewNamespace) -> Result<Namespace, AclClientError> {
        self.in_namespace(None).send_json(Method::PUT, &endpoint(&["namespace", &update.name]), update).await
    }

    /// Marks a namespace for deletion; its records are deleted in the background. Returns false if there was none.
    pub async fn delete_namespace(&self, name: &str) -> Result<bool, AclClientError> {
        self.in_namespace(None).delete(&endpoint(&["namespace", name])).await
    }

    /// Lists the namespaces that the token may see.
    pub async fn list_namespaces(&self, query: &QueryOptions) -> Result<ReadResponse<Vec<Namespace>>, AclClientError> {
        self.in_namespace(None).get(&endpoint(&["namespaces"]), &[], query).await
    }
}
