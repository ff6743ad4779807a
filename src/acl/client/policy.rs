//! Policies.

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::{Client, To};
use super::error::Error;
use super::query::{Query, Reading};
use super::wire::{empty_is_none, null_is_default};
use crate::acl::model::id::Id;

/// A policy as the server tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Policy {
    /// Its id. No [`Id`], since policies that stand for an identity or a template have longer ones.
    #[serde(rename = "ID")]
    pub id: String,
    /// Its name.
    pub name: String,
    /// Free text.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Its rules; lists leave them out.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub rules: String,
    /// The datacenters where it counts; all, if there are none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
    /// The hash of what may change in it.
    #[serde(deserialize_with = "null_is_default")]
    pub hash: String,
    /// The namespace that it lives in.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The index at which it was made.
    pub create_index: u64,
    /// The index of its last change.
    pub modify_index: u64,
}

/// A policy to be made, or what one becomes: an update replaces all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewPolicy {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// Free text.
    pub description: String,
    /// Its rules, in HCL or JSON.
    pub rules: String,
    /// The datacenters where it counts; all, if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

impl From<&Policy> for NewPolicy {
    fn from(policy: &Policy) -> Self {
        let Policy { name, description, rules, datacenters, .. } = policy.clone();
        Self { name, description, rules, datacenters }
    }
}

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: "calls for policies", since: None }
}

impl Client {
    /// Makes a policy.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_policy(&self, new: &NewPolicy) -> Result<Policy, Error> {
        self.send_json(Method::PUT, &to(&["acl", "policy"]), new).await
    }

    /// Reads a policy.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_policy(&self, id: &Id, query: &Query) -> Result<Reading<Policy>, Error> {
        self.get(&to(&["acl", "policy", &id.to_string()]), &[], query).await
    }

    /// Reads the policy of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_policy_by_name(&self, name: &str, query: &Query) -> Result<Reading<Policy>, Error> {
        self.get(&to(&["acl", "policy", "name", name]), &[], query).await
    }

    /// Replaces what may change in a policy.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_policy(&self, id: &Id, update: &NewPolicy) -> Result<Policy, Error> {
        self.send_json(Method::PUT, &to(&["acl", "policy", &id.to_string()]), update).await
    }

    /// Deletes a policy. `false`: there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_policy(&self, id: &Id) -> Result<bool, Error> {
        self.delete(&to(&["acl", "policy", &id.to_string()])).await
    }

    /// Lists policies, without their rules.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_policies(&self, query: &Query) -> Result<Reading<Vec<Policy>>, Error> {
        self.get(&to(&["acl", "policies"]), &[], query).await
    }
}
