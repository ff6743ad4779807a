//! Policies.

use http::Method;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;
use super::go_json::{empty_is_none, null_is_default};
use super::query::{QueryOptions, ReadResponse};
use crate::model::id::Id;

/// A policy as the server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Policy {
    /// Unique id. Not an [`Id`], as generated policies of identities and templates have longer ones.
    #[serde(rename = "ID")]
    pub id: String,
    /// Name, unique in its namespace.
    pub name: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Rules in HCL or JSON; absent in lists.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub rules: String,
    /// Datacenters in which it is valid; empty for all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
    /// Hash of its mutable fields.
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) hash: String,
    /// Namespace of the record.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    pub(crate) create_index: u64,
    /// Index of its last change.
    pub(crate) modify_index: u64,
}

/// A policy to be created, or the new content of one. An update replaces all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewPolicy {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Rules in HCL or JSON.
    pub rules: String,
    /// Datacenters in which it is valid; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

impl From<&Policy> for NewPolicy {
    fn from(policy: &Policy) -> Self {
        let Policy { name, description, rules, datacenters, .. } = policy.clone();
        Self { name, description, rules, datacenters }
    }
}

fn endpoint<'a>(path: &'a [&'a str]) -> Endpoint<'a> {
    Endpoint { path, name: "calls for policies", since: None }
}

impl AclClient {
    /// Creates a policy.
    pub async fn create_policy(&self, new: &NewPolicy) -> Result<Policy, AclClientError> {
        self.send_json(Method::PUT, &endpoint(&["acl", "policy"]), new).await
    }

    /// Reads a policy.
    pub async fn read_policy(&self, id: &Id, query: &QueryOptions) -> Result<ReadResponse<Policy>, AclClientError> {
        self.get(&endpoint(&["acl", "policy", &id.to_string()]), &[], query).await
    }

    /// Reads the policy of that name.
    pub async fn read_policy_by_name(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<ReadResponse<Policy>, AclClientError> {
        self.get(&endpoint(&["acl", "policy", "name", name]), &[], query).await
    }

    /// Replaces the mutable fields of a policy.
    pub async fn update_policy(&self, id: &Id, update: &NewPolicy) -> Result<Policy, AclClientError> {
        self.send_json(Method::PUT, &endpoint(&["acl", "policy", &id.to_string()]), update).await
    }

    /// Deletes a policy. Returns false if there was none.
    pub async fn delete_policy(&self, id: &Id) -> Result<bool, AclClientError> {
        self.delete(&endpoint(&["acl", "policy", &id.to_string()])).await
    }

    /// Lists policies, without their rules.
    pub async fn list_policies(&self, query: &QueryOptions) -> Result<ReadResponse<Vec<Policy>>, AclClientError> {
        self.get(&endpoint(&["acl", "policies"]), &[], query).await
    }
}
