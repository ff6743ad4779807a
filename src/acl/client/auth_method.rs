//! Auth methods.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::{Client, To};
use super::error::Error;
use super::query::{Query, Reading};
use super::wire::{bound, empty_is_none, null_is_default};

/// An auth method as the server tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AuthMethod {
    /// Its name.
    pub name: String,
    /// Its type, such as `jwt`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Its name for people.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Free text.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// How long its tokens live, such as `5m`; without end, if `None`.
    #[serde(rename = "MaxTokenTTL", deserialize_with = "bound", skip_serializing_if = "Option::is_none")]
    pub max_token_ttl: Option<String>,
    /// Whether its tokens count in one datacenter (`local`) or in all (`global`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub token_locality: String,
    /// What its type asks for; lists leave it out.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// The namespace that it lives in.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The index at which it was made.
    pub create_index: u64,
    /// The index of its last change.
    pub modify_index: u64,
}

/// An auth method to be made, or what one becomes: an update replaces all of it but the type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewAuthMethod {
    /// Its name: 1 to 128 letters, digits, `-` and `_`.
    pub name: String,
    /// Its type, such as `jwt`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Free text.
    pub description: String,
    /// How long its tokens live, such as `5m`.
    #[serde(rename = "MaxTokenTTL", skip_serializing_if = "Option::is_none")]
    pub max_token_ttl: Option<String>,
    /// Whether its tokens count in one datacenter (`local`) or in all (`global`); the server's choice if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token_locality: String,
    /// What its type asks for.
    pub config: Map<String, Value>,
}

impl From<&AuthMethod> for NewAuthMethod {
    fn from(method: &AuthMethod) -> Self {
        let AuthMethod { name, kind, display_name, description, max_token_ttl, token_locality, config, .. } =
            method.clone();
        Self { name, kind, display_name, description, max_token_ttl, token_locality, config }
    }
}

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: "calls for auth methods", since: None }
}

impl Client {
    /// Makes an auth method.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_auth_method(&self, new: &NewAuthMethod) -> Result<AuthMethod, Error> {
        self.send_json(Method::PUT, &to(&["acl", "auth-method"]), new).await
    }

    /// Reads an auth method.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_auth_method(&self, name: &str, query: &Query) -> Result<Reading<AuthMethod>, Error> {
        self.get(&to(&["acl", "auth-method", name]), &[], query).await
    }

    /// Replaces what may change in the auth method of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_auth_method(&self, update: &NewAuthMethod) -> Result<AuthMethod, Error> {
        self.send_json(Method::PUT, &to(&["acl", "auth-method", &update.name]), update).await
    }

    /// Deletes an auth method, its binding rules and the tokens that it made. `false`: there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_auth_method(&self, name: &str) -> Result<bool, Error> {
        self.delete(&to(&["acl", "auth-method", name])).await
    }

    /// Lists auth methods, without what their type asks for.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_auth_methods(&self, query: &Query) -> Result<Reading<Vec<AuthMethod>>, Error> {
        self.get(&to(&["acl", "auth-methods"]), &[], query).await
    }
}
