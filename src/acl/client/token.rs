//! Tokens.

use std::time::Duration;

use http::Method;
use keyward_machine::secret_string::SecretString;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, parse};
use super::error::AclClientError;
use super::policy::Policy;
use super::query::{QueryOptions, ReadResponse};
use super::records::{AclRecord, endpoint};
use super::role::Role;
use crate::model::go_json::{
    deserialize_secret, deserialize_time, empty_is_none, null_is_default, serialize_duration, serialize_secret,
};
use crate::model::id::Id;
use crate::model::links::{AclLink, AclLinks};
use crate::model::timestamp::Timestamp;

/// A token as the server returns it. Serialization omits the secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Token {
    /// Identifies the token in paths and logs.
    #[serde(rename = "AccessorID")]
    pub accessor_id: Id,
    /// Secret; `None` if the caller may not see it.
    #[serde(rename = "SecretID", default, deserialize_with = "deserialize_secret", skip_serializing)]
    pub secret_id: Option<SecretString>,
    /// Free text for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Roles that the token links.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<AclLink>,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
    /// True if the token is valid in this datacenter only.
    #[serde(default)]
    pub local: bool,
    /// Auth method whose login created the token.
    #[serde(default, deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// Expiration; `None` for never.
    #[serde(default, deserialize_with = "deserialize_time", skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Timestamp>,
    /// Creation time.
    #[serde(default, deserialize_with = "deserialize_time", skip_serializing_if = "Option::is_none")]
    pub create_time: Option<Timestamp>,
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

/// Token to be created.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewToken {
    /// Accessor; random if `None`.
    #[serde(rename = "AccessorID", skip_serializing_if = "Option::is_none")]
    pub accessor_id: Option<Id>,
    /// Secret, a UUID from a cryptographic source; random if `None`.
    #[serde(rename = "SecretID", serialize_with = "serialize_secret", skip_serializing_if = "Option::is_none")]
    pub secret_id: Option<SecretString>,
    /// Free text for people.
    pub description: String,
    /// Roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<AclLink>,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
    /// True if the token is valid in this datacenter only.
    pub local: bool,
    /// Expiration, 1 minute to 24 hours from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Timestamp>,
    /// Lifetime instead of an expiration, 1 minute to 24 hours.
    #[serde(rename = "ExpirationTTL", serialize_with = "serialize_duration", skip_serializing_if = "Option::is_none")]
    pub expiration_ttl: Option<Duration>,
}

/// New content of a token. Links absent here are removed, so build it from the token read ([`TokenUpdate::from`]).
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TokenUpdate {
    /// Free text for people.
    pub description: String,
    /// Roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<AclLink>,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
    /// Unchanged: the server takes a missing value for `false`, and refuses a change.
    local: bool,
}

impl From<&Token> for TokenUpdate {
    fn from(token: &Token) -> Self {
        let Token { description, roles, links, local, .. } = token.clone();
        Self { description, roles, links, local }
    }
}

/// Expanded part of a token read: all policies and roles that the rights come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TokenExpansion {
    /// Policies: linked, of roles, of the namespace's defaults, and generated for identities and templates.
    #[serde(deserialize_with = "null_is_default")]
    pub expanded_policies: Vec<Policy>,
    /// Roles: linked, and of the namespace's defaults.
    #[serde(deserialize_with = "null_is_default")]
    pub expanded_roles: Vec<Role>,
    /// Ids of the policies that are defaults of the namespace.
    #[serde(rename = "NamespaceDefaultPolicyIDs", deserialize_with = "null_is_default")]
    pub namespace_default_policy_ids: Vec<String>,
    /// Ids of the roles that are defaults of the namespace.
    #[serde(rename = "NamespaceDefaultRoleIDs", deserialize_with = "null_is_default")]
    pub namespace_default_role_ids: Vec<String>,
    /// Decision where no rule matches: `allow` or `deny`.
    #[serde(rename = "AgentACLDefaultPolicy", deserialize_with = "null_is_default")]
    pub agent_acl_default_policy: String,
}

/// Filter of a token list. Servers accept one at a time; [`TokenListFilter::auth_method_namespace`] goes with its auth method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenListFilter {
    /// Tokens that link this policy.
    pub policy: Option<Id>,
    /// Tokens that link this role.
    pub role: Option<Id>,
    /// Tokens with this service identity.
    pub service_name: Option<String>,
    /// Tokens created by logins of this auth method.
    pub auth_method: Option<String>,
    /// Namespace of that auth method.
    pub auth_method_namespace: Option<String>,
}

impl AclRecord for Token {
    type Id = Id;
    type New = NewToken;
    type Update = TokenUpdate;
    type Filter = TokenListFilter;

    const KIND: &'static str = "token";
    const PLURAL: &'static str = "tokens";
    const PATH: &'static [&'static str] = &["acl", "token"];
    const LIST_PATH: &'static [&'static str] = &["acl", "tokens"];

    fn parameters(filter: &TokenListFilter) -> Vec<(&'static str, String)> {
        let parameters = [
            ("policy", filter.policy.map(|id| id.to_string())),
            ("role", filter.role.map(|id| id.to_string())),
            ("servicename", filter.service_name.clone()),
            ("authmethod", filter.auth_method.clone()),
            ("authmethod-ns", filter.auth_method_namespace.clone()),
        ];
        parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl AclClient {
    /// Reads a token with all policies and roles that its rights come from.
    pub async fn read_token_expanded(
        &self,
        accessor: &Id,
        query: &QueryOptions,
    ) -> Result<ReadResponse<(Token, TokenExpansion)>, AclClientError> {
        let path = ["acl", "token", &accessor.to_string()];
        let response = self.get_raw(&endpoint::<Token>(&path), &[("expanded", "true".to_owned())], query).await?;
        let both = (parse(&response)?, parse(&response)?);
        Ok(ReadResponse::from_headers(&response.headers).map(|()| both))
    }

    /// Reads the token of this client, with its secret.
    pub async fn read_self(&self, query: &QueryOptions) -> Result<ReadResponse<Token>, AclClientError> {
        self.get(&endpoint::<Token>(&["acl", "token", "self"]), &[], query).await
    }

    /// Creates a token with the links and the expiration of another, and with its description if `description` is `None`.
    pub async fn clone_token(&self, accessor: &Id, description: Option<&str>) -> Result<Token, AclClientError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
        }
        let path = ["acl", "token", &accessor.to_string(), "clone"];
        self.send_json(Method::PUT, &endpoint::<Token>(&path), &Body { description }).await
    }
}
