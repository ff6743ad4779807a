//! Roles.

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::{Client, To};
use super::error::Error;
use super::link::Links;
use super::query::{Query, Reading};
use super::wire::{empty_is_none, null_is_default};
use crate::acl::model::id::Id;

/// A role as the server tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Role {
    /// Its id.
    #[serde(rename = "ID")]
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Free text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// What it links.
    #[serde(flatten)]
    pub links: Links,
    /// The hash of what may change in it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hash: String,
    /// The namespace that it lives in.
    #[serde(default, deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The index at which it was made.
    #[serde(default)]
    pub create_index: u64,
    /// The index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

/// A role to be made, or what one becomes: an update replaces all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewRole {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// Free text.
    pub description: String,
    /// What it links.
    #[serde(flatten)]
    pub links: Links,
}

impl From<&Role> for NewRole {
    fn from(role: &Role) -> Self {
        let Role { name, description, links, .. } = role.clone();
        Self { name, description, links }
    }
}

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: "calls for roles", since: Some("1.5.0") }
}

impl Client {
    /// Makes a role.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_role(&self, new: &NewRole) -> Result<Role, Error> {
        self.send_json(Method::PUT, &to(&["acl", "role"]), new).await
    }

    /// Reads a role.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_role(&self, id: &Id, query: &Query) -> Result<Reading<Role>, Error> {
        self.get(&to(&["acl", "role", &id.to_string()]), &[], query).await
    }

    /// Reads the role of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_role_by_name(&self, name: &str, query: &Query) -> Result<Reading<Role>, Error> {
        self.get(&to(&["acl", "role", "name", name]), &[], query).await
    }

    /// Replaces what may change in a role.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_role(&self, id: &Id, update: &NewRole) -> Result<Role, Error> {
        self.send_json(Method::PUT, &to(&["acl", "role", &id.to_string()]), update).await
    }

    /// Deletes a role. `false`: there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_role(&self, id: &Id) -> Result<bool, Error> {
        self.delete(&to(&["acl", "role", &id.to_string()])).await
    }

    /// Lists roles; only those that link a policy, where one is given.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_roles(&self, policy: Option<&Id>, query: &Query) -> Result<Reading<Vec<Role>>, Error> {
        let policy = policy.map(ToString::to_string);
        let parameters: Vec<_> = policy.iter().map(|policy| ("policy", policy.as_str())).collect();
        self.get(&to(&["acl", "roles"]), &parameters, query).await
    }
}
