//! What a token may do, asked beforehand.

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::{Client, To};
use super::error::Error;

/// Whether the token may do something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Question {
    /// The kind of resource, such as `service` or `acl`.
    pub resource: String,
    /// What is to be done: `read`, `write`, `list`.
    pub access: String,
    /// The name of the resource, where its kind has names.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub segment: String,
}

/// The answer to one [`Question`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ruling {
    /// As asked.
    pub resource: String,
    /// As asked.
    pub access: String,
    /// As asked.
    pub segment: String,
    /// Whether the token may.
    pub allow: bool,
}

impl Client {
    /// Asks what the token of this client may do; at most 64 questions at once, answered in their order.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn authorize(&self, questions: &[Question]) -> Result<Vec<Ruling>, Error> {
        let to = To { path: &["internal", "acl", "authorize"], name: "the call that tells rights", since: None };
        self.send_json(Method::POST, &to, &questions).await
    }
}
