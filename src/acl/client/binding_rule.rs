//! Binding rules, which give links to the tokens of logins.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;
use super::go_json::{empty_is_none, null_is_default};
use super::query::{QueryOptions, ReadResponse};
use crate::model::id::Id;

/// A binding rule as the server returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindingRule {
    /// Unique id, assigned by the server.
    #[serde(rename = "ID")]
    pub id: Id,
    /// Content of the rule.
    #[serde(flatten)]
    pub rule: NewBindingRule,
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

/// A binding rule to be created, or the new content of one. An update keeps the auth method.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NewBindingRule {
    /// Auth method whose logins it matches.
    pub auth_method: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Expression over the caller's claims that selects logins; empty for all.
    #[serde(deserialize_with = "null_is_default")]
    pub selector: String,
    /// Kind of link that the token gets: `service`, `node`, `role`, `policy` or `templated-policy`.
    pub bind_type: String,
    /// Name of the link; may contain `${...}` variables of the caller's claims.
    pub bind_name: String,
    /// Variables of a templated policy.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Map::is_empty")]
    pub bind_vars: Map<String, Value>,
}

fn endpoint<'a>(path: &'a [&'a str]) -> Endpoint<'a> {
    Endpoint { path, name: "calls for binding rules", since: None }
}

impl AclClient {
    /// Creates a binding rule.
    pub async fn create_binding_rule(&self, new: &NewBindingRule) -> Result<BindingRule, AclClientError> {
        self.send_json(Method::PUT, &endpoint(&["acl", "binding-rule"]), new).await
    }

    /// Reads a binding rule.
    pub async fn read_binding_rule(
        &self,
        id: &Id,
        query: &QueryOptions,
    ) -> Result<ReadResponse<BindingRule>, AclClientError> {
        self.get(&endpoint(&["acl", "binding-rule", &id.to_string()]), &[], query).await
    }

    /// Replaces the mutable fields of a binding rule.
    pub async fn update_binding_rule(&self, id: &Id, update: &NewBindingRule) -> Result<BindingRule, AclClientError> {
        self.send_json(Method::PUT, &endpoint(&["acl", "binding-rule", &id.to_string()]), update).await
    }

    /// Deletes a binding rule. Returns false if there was none.
    pub async fn delete_binding_rule(&self, id: &Id) -> Result<bool, AclClientError> {
        self.delete(&endpoint(&["acl", "binding-rule", &id.to_string()])).await
    }

    /// Lists binding rules; only those of `auth_method` if given.
    pub async fn list_binding_rules(
        &self,
        auth_method: Option<&str>,
        query: &QueryOptions,
    ) -> Result<ReadResponse<Vec<BindingRule>>, AclClientError> {
        let parameters: Vec<_> = auth_method.iter().map(|method| ("authmethod", *method)).collect();
        self.get(&endpoint(&["acl", "binding-rules"]), &parameters, query).await
    }
}
