//! Bootstrap, login and logout.

use std::collections::BTreeMap;

use http::Method;
use keyward_machine::secret_string::SecretString;
use serde::Serialize;

use super::acl_client::{AclClient, Endpoint, parse};
use super::error::AclClientError;
use super::token::Token;
use crate::model::go_json::serialize_secret;

/// Request of a login.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LoginRequest {
    /// Name of the auth method.
    pub auth_method: String,
    /// Identity token for the auth method.
    #[serde(serialize_with = "serialize_secret")]
    pub bearer_token: Option<SecretString>,
    /// Metadata for the token's description.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

impl AclClient {
    /// Creates the first token of a server, with all rights; possible once. `secret` sets its secret, a UUID. The token of this
    /// client is not sent.
    pub async fn bootstrap(&self, secret: Option<SecretString>) -> Result<Token, AclClientError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body {
            #[serde(serialize_with = "serialize_secret", skip_serializing_if = "Option::is_none")]
            bootstrap_secret: Option<SecretString>,
        }
        let endpoint = Endpoint { path: &["acl", "bootstrap"], name: "bootstrap".into(), since: None };
        self.anonymous().send_json(Method::PUT, &endpoint, &Body { bootstrap_secret: secret }).await
    }

    /// Logs in by an auth method. The token of this client is not sent.
    pub async fn login(&self, login: &LoginRequest) -> Result<Token, AclClientError> {
        let endpoint = Endpoint { path: &["acl", "login"], name: "login".into(), since: None };
        self.anonymous().send_json(Method::POST, &endpoint, login).await
    }

    /// Deletes the token of this client, which a login must have created.
    pub async fn logout(&self) -> Result<bool, AclClientError> {
        let endpoint = Endpoint { path: &["acl", "logout"], name: "logout".into(), since: None };
        parse(&self.call(Method::POST, &endpoint).await?)
    }
}
