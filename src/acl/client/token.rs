//! Tokens.

use std::time::Duration;

use http::Method;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::call::{Client, To, parse};
use super::error::Error;
use super::link::{Link, Links};
use super::policy::Policy;
use super::query::{Query, Reading};
use super::role::Role;
use super::wire::{empty_is_none, null_is_default, reveal, secret, span, time};
use crate::acl::model::id::Id;
use crate::acl::model::timestamp::Timestamp;

/// A token as the server tells it. Serialized, it has all fields but the secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Token {
    /// Names it in paths and logs.
    #[serde(rename = "AccessorID")]
    pub accessor_id: Id,
    /// The secret; `None` where the caller may not have it.
    #[serde(rename = "SecretID", default, deserialize_with = "secret", skip_serializing)]
    pub secret_id: Option<SecretString>,
    /// Free text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Roles that it links.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Link>,
    /// What else it links.
    #[serde(flatten)]
    pub links: Links,
    /// Whether it counts in this datacenter only.
    #[serde(default)]
    pub local: bool,
    /// The auth method whose login made it.
    #[serde(default, deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// When it ends; never, if `None`.
    #[serde(default, deserialize_with = "time", skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Timestamp>,
    /// When it was made.
    #[serde(default, deserialize_with = "time", skip_serializing_if = "Option::is_none")]
    pub create_time: Option<Timestamp>,
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

/// A token to be made.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewToken {
    /// Its accessor; the server takes a random one if `None`.
    #[serde(rename = "AccessorID", skip_serializing_if = "Option::is_none")]
    pub accessor_id: Option<Id>,
    /// Its secret, a UUID from a cryptographic source; the server takes a random one if `None`.
    #[serde(rename = "SecretID", serialize_with = "reveal", skip_serializing_if = "Option::is_none")]
    pub secret_id: Option<SecretString>,
    /// Free text.
    pub description: String,
    /// Roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Link>,
    /// What else it links.
    #[serde(flatten)]
    pub links: Links,
    /// Whether it counts in this datacenter only.
    pub local: bool,
    /// When it ends: 1 minute to 24 hours from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Timestamp>,
    /// How long it lives, in place of when it ends: 1 minute to 24 hours.
    #[serde(rename = "ExpirationTTL", serialize_with = "span", skip_serializing_if = "Option::is_none")]
    pub expiration_ttl: Option<Duration>,
}

/// What a token becomes. Whatever is not in here is taken from it, but for what cannot change: an update is made of
/// what was read ([`TokenUpdate::from`]).
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TokenUpdate {
    /// Free text.
    pub description: String,
    /// Roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Link>,
    /// What else it links.
    #[serde(flatten)]
    pub links: Links,
    /// As it is: a server takes a missing one for `false`, and refuses a change.
    local: bool,
}

impl From<&Token> for TokenUpdate {
    fn from(token: &Token) -> Self {
        let Token { description, roles, links, local, .. } = token.clone();
        Self { description, roles, links, local }
    }
}

/// What an expanded read tells beside the token: all that its rights come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Expansion {
    /// Its policies: linked, by roles, by the namespace's defaults, and made for identities and templates.
    #[serde(deserialize_with = "null_is_default")]
    pub expanded_policies: Vec<Policy>,
    /// Its roles.
    #[serde(deserialize_with = "null_is_default")]
    pub expanded_roles: Vec<Role>,
    /// Which of the policies are defaults of its namespace.
    #[serde(rename = "NamespaceDefaultPolicyIDs", deserialize_with = "null_is_default")]
    pub namespace_default_policy_ids: Vec<String>,
    /// Which of the roles are defaults of its namespace.
    #[serde(rename = "NamespaceDefaultRoleIDs", deserialize_with = "null_is_default")]
    pub namespace_default_role_ids: Vec<String>,
    /// What counts where no rule does: `allow` or `deny`.
    #[serde(rename = "AgentACLDefaultPolicy", deserialize_with = "null_is_default")]
    pub agent_acl_default_policy: String,
}

/// Which tokens a list is of. Servers take one of them at a time, [`TokenFilter::auth_method_namespace`] beside its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenFilter {
    /// Those that link this policy.
    pub policy: Option<Id>,
    /// Those that link this role.
    pub role: Option<Id>,
    /// Those with this service identity.
    pub service_name: Option<String>,
    /// Those that a login by this auth method made.
    pub auth_method: Option<String>,
    /// The namespace of that auth method.
    pub auth_method_namespace: Option<String>,
}

const NAME: &str = "calls for tokens";

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: NAME, since: None }
}

impl Client {
    /// Makes a token. The answer holds its secret.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_token(&self, new: &NewToken) -> Result<Token, Error> {
        self.send_json(Method::PUT, &to(&["acl", "token"]), new).await
    }

    /// Reads a token.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_token(&self, accessor: &Id, query: &Query) -> Result<Reading<Token>, Error> {
        self.get(&to(&["acl", "token", &accessor.to_string()]), &[], query).await
    }

    /// Reads a token, and all that its rights come from.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_token_expanded(
        &self,
        accessor: &Id,
        query: &Query,
    ) -> Result<Reading<(Token, Expansion)>, Error> {
        let accessor = accessor.to_string();
        let path = ["acl", "token", &accessor];
        let answer = self.read(&to(&path), &[("expanded", "true")], query).await?;
        let both = (parse(&answer)?, parse(&answer)?);
        Ok(Reading::of(&answer.headers).map(|()| both))
    }

    /// Reads the token of this client. Its secret is never hidden from it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_self(&self, query: &Query) -> Result<Reading<Token>, Error> {
        self.get(&to(&["acl", "token", "self"]), &[], query).await
    }

    /// Changes a token.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_token(&self, accessor: &Id, update: &TokenUpdate) -> Result<Token, Error> {
        self.send_json(Method::PUT, &to(&["acl", "token", &accessor.to_string()]), update).await
    }

    /// Makes a token with the links and the end of another. Its description is the other's, where `None` is given.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn clone_token(&self, accessor: &Id, description: Option<&str>) -> Result<Token, Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
        }
        let accessor = accessor.to_string();
        self.send_json(Method::PUT, &to(&["acl", "token", &accessor, "clone"]), &Body { description }).await
    }

    /// Deletes a token. `false`: there was none.
    ///
    /// # Errors
    /// See [`Error`]. A token cannot delete itself.
    pub async fn delete_token(&self, accessor: &Id) -> Result<bool, Error> {
        self.delete(&to(&["acl", "token", &accessor.to_string()])).await
    }

    /// Lists tokens.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_tokens(&self, filter: &TokenFilter, query: &Query) -> Result<Reading<Vec<Token>>, Error> {
        let (policy, role) = (filter.policy.map(|id| id.to_string()), filter.role.map(|id| id.to_string()));
        let parameters = [
            ("policy", &policy),
            ("role", &role),
            ("servicename", &filter.service_name),
            ("authmethod", &filter.auth_method),
            ("authmethod-ns", &filter.auth_method_namespace),
        ];
        let given = parameters.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        self.get(&to(&["acl", "tokens"]), &given.collect::<Vec<_>>(), query).await
    }
}
