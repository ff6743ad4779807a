//! Roles.

use http::Method;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;
use super::go_json::{empty_is_none, null_is_default};
use super::link::AclLinks;
use super::query::{QueryOptions, ReadResponse};
use crate::model::id::Id;

/// A role as the server returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Role {
    /// Unique id, assigned by the server.
    #[serde(rename = "ID")]
    pub id: Id,
    /// Name, unique in its namespace.
    pub name: String,
    /// Free text for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
    /// Hash of its mutable fields.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) hash: String,
    /// Namespace of the record.
    #[serde(default, deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default)]
    pub(crate) create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub(crate) modify_index: u64,
}

/// A role to be created, or the new content of one. An update replaces all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewRole {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
}

impl From<&Role> for NewRole {
    fn from(role: &Role) -> Self {
        let Role { name, description, links, .. } = role.clone();
        Self { name, description, links }
    }
}

fn endpoint<'a>(path: &'a [&'a str]) -> Endpoint<'a> {
    Endpoint { path, name: "calls for roles", since: Some("1.5.0") }
}

impl AclClient {
    /// Creates a role.
    pub async fn create_role(&self, new: &NewRole) -> Result<Role, AclClientError> {
        self.send_json(Method::PUT, &endpoint(&["acl", "role"]), new).await
    }

    /// Reads a role.
    pub async fn read_role(&self, id: &Id, query: &QueryOptions) -> Result<ReadResponse<Role>, AclClientError> {
        self.get(&endpoint(&["acl", "role", &id.to_string()]), &[], query).await
    }

    /// Reads the role of that name.
    pub async fn read_role_by_name(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<ReadResponse<Role>, AclClientError> {
        self.get(&endpoint(&["acl", "role", "name", name]), &[], query).await
    }

    /// Replaces the mutable fields of a role.
    pub async fn update_role(&self, id: &Id, update: &NewRole) -> Result<Role, AclClientError> {
        self.send_json(Method::PUT, &endpoint(&["acl", "role", &id.to_string()]), update).await
    }

    /// Deletes a role. Returns false if there was none.
    pub async fn delete_role(&self, id: &Id) -> Result<bool, AclClientError> {
        self.delete(&endpoint(&["acl", "role", &id.to_string()])).await
    }

    /// Lists roles; only those that link a policy, where one is given.
    pub async fn list_roles(
        &self,
        policy: Option<&Id>,
        query: &QueryOptions,
    ) -> Result<ReadResponse<Vec<Role>>, AclClientError> {
        let policy = policy.map(ToString::to_string);
        let parameters: Vec<_> = policy.iter().map(|policy| ("policy", policy.as_str())).collect();
        self.get(&endpoint(&["acl", "roles"]), &parameters, query).await
    }
}
