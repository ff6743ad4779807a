//! Binding rules: what a login gives.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::{Client, To};
use super::error::Error;
use super::query::{Query, Reading};
use super::wire::{empty_is_none, null_is_default};
use crate::acl::model::id::Id;

/// A binding rule as the server tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindingRule {
    /// Its id.
    #[serde(rename = "ID")]
    pub id: Id,
    /// What it says.
    #[serde(flatten)]
    pub rule: NewBindingRule,
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

/// A binding rule to be made, or what one becomes: an update replaces all of it but the auth method.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NewBindingRule {
    /// The auth method whose logins it is for.
    pub auth_method: String,
    /// Free text.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Which logins: an expression over what is known of the caller; all, if empty.
    #[serde(deserialize_with = "null_is_default")]
    pub selector: String,
    /// What the token gets: `service`, `node`, `role`, `policy` or `templated-policy`.
    pub bind_type: String,
    /// Its name, which may hold `${...}` of what is known of the caller.
    pub bind_name: String,
    /// The variables of a templated policy.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Map::is_empty")]
    pub bind_vars: Map<String, Value>,
}

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: "calls for binding rules", since: None }
}

impl Client {
    /// Makes a binding rule.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_binding_rule(&self, new: &NewBindingRule) -> Result<BindingRule, Error> {
        self.send_json(Method::PUT, &to(&["acl", "binding-rule"]), new).await
    }

    /// Reads a binding rule.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_binding_rule(&self, id: &Id, query: &Query) -> Result<Reading<BindingRule>, Error> {
        self.get(&to(&["acl", "binding-rule", &id.to_string()]), &[], query).await
    }

    /// Replaces what may change in a binding rule.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_binding_rule(&self, id: &Id, update: &NewBindingRule) -> Result<BindingRule, Error> {
        self.send_json(Method::PUT, &to(&["acl", "binding-rule", &id.to_string()]), update).await
    }

    /// Deletes a binding rule. `false`: there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_binding_rule(&self, id: &Id) -> Result<bool, Error> {
        self.delete(&to(&["acl", "binding-rule", &id.to_string()])).await
    }

    /// Lists binding rules; only those of an auth method, where one is given.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_binding_rules(
        &self,
        auth_method: Option<&str>,
        query: &Query,
    ) -> Result<Reading<Vec<BindingRule>>, Error> {
        let parameters: Vec<_> = auth_method.iter().map(|method| ("authmethod", *method)).collect();
        self.get(&to(&["acl", "binding-rules"]), &parameters, query).await
    }
}
