//! Auth methods.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::records::AclRecord;
use crate::model::go_json::{deserialize_ttl, empty_is_none, null_is_default};

/// An auth method as the server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AuthMethod {
    /// Name, unique in its namespace.
    pub name: String,
    /// Its type, such as `jwt`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Name shown in user interfaces.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Lifetime of its tokens, such as `5m`; `None` for no expiration.
    #[serde(rename = "MaxTokenTTL", deserialize_with = "deserialize_ttl", skip_serializing_if = "Option::is_none")]
    pub max_token_ttl: Option<String>,
    /// `local` for tokens valid in one datacenter, `global` for all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub token_locality: String,
    /// Configuration of the type; absent in lists.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// Rules of Consul Enterprise for the namespaces of its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace_rules: Option<Value>,
    /// Description of its tokens, with placeholders.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub token_name_format: String,
    /// True for a method of the server's configuration, which no call changes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub configured: bool,
    /// Login roles of a method of the configuration.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Namespace of the record.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    pub(crate) create_index: u64,
    /// Index of its last change.
    pub(crate) modify_index: u64,
}

/// An auth method to be created, or the new content of one. An update keeps the type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewAuthMethod {
    /// Name of 1 to 128 letters, digits, `-` and `_`.
    pub name: String,
    /// Its type, such as `jwt`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Name shown in user interfaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Free text for people.
    pub description: String,
    /// Lifetime of its tokens, such as `5m`.
    #[serde(rename = "MaxTokenTTL", skip_serializing_if = "Option::is_none")]
    pub max_token_ttl: Option<String>,
    /// `local` for tokens valid in one datacenter, `global` for all; the server's default if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token_locality: String,
    /// Configuration of the type.
    pub config: Map<String, Value>,
    /// Rules of Consul Enterprise for the namespaces of its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_rules: Option<Value>,
    /// Description of its tokens, with placeholders; the usual one if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token_name_format: String,
}

impl From<&AuthMethod> for NewAuthMethod {
    fn from(method: &AuthMethod) -> Self {
        let AuthMethod {
            name,
            kind,
            display_name,
            description,
            max_token_ttl,
            token_locality,
            config,
            namespace_rules,
            token_name_format,
            ..
        } = method.clone();
        Self {
            name,
            kind,
            display_name,
            description,
            max_token_ttl,
            token_locality,
            config,
            namespace_rules,
            token_name_format,
        }
    }
}

impl AclRecord for AuthMethod {
    type Id = str;
    type New = NewAuthMethod;
    type Update = NewAuthMethod;
    type Filter = ();

    const KIND: &'static str = "auth method";
    const PLURAL: &'static str = "auth methods";
    const PATH: &'static [&'static str] = &["acl", "auth-method"];
    const LIST_PATH: &'static [&'static str] = &["acl", "auth-methods"];

    /// The list of a keyward server ends with the methods of its configuration.
    fn parameters((): &()) -> Vec<(&'static str, String)> {
        vec![("configured", "true".to_owned())]
    }
}
