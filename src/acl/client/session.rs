//! The first token of a service, and tokens by login.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use secrecy::SecretString;
use serde::Serialize;

use super::call::{Client, To, parse};
use super::error::Error;
use super::token::Token;
use super::wire::reveal;

/// Who logs in, and with what.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Login {
    /// The auth method.
    pub auth_method: String,
    /// The proof that it asks for.
    #[serde(serialize_with = "reveal")]
    pub bearer_token: Option<SecretString>,
    /// What is written into the token's description.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

impl Client {
    /// Makes the first token of a service, which may do all; once in its life. Its secret is `secret`, a UUID, where one
    /// is given. The token of this client plays no part.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn bootstrap(&self, secret: Option<SecretString>) -> Result<Token, Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body {
            #[serde(serialize_with = "reveal", skip_serializing_if = "Option::is_none")]
            bootstrap_secret: Option<SecretString>,
        }
        let to = To { path: &["acl", "bootstrap"], name: "the call for the first token", since: None };
        self.anonymous().send_json(Method::PUT, &to, &Body { bootstrap_secret: secret }).await
    }

    /// Makes a token for whom an auth method knows. The token of this client plays no part.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn login(&self, login: &Login) -> Result<Token, Error> {
        let to = To { path: &["acl", "login"], name: "the call to log in", since: None };
        self.anonymous().send_json(Method::POST, &to, login).await
    }

    /// Deletes the token of this client, which a login must have made.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn logout(&self) -> Result<bool, Error> {
        let to = To { path: &["acl", "logout"], name: "the call to log out", since: None };
        parse(&self.send(self.request(Method::POST, &to)?, &to, Duration::ZERO).await?)
    }
}
