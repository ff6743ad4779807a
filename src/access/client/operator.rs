//! What operators do with the service itself.

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::{Client, To};
use super::error::Error;

/// How far a change of the key came that tokens are under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Rekeyed {
    /// The key that tokens are written with.
    #[serde(rename = "KeyID")]
    pub key_id: String,
    /// How many tokens this call moved to it.
    pub rewritten: u64,
    /// Whether all are under it; else the call is to be made again, unless there are some that cannot be read.
    pub done: bool,
    /// Tokens that cannot be moved, by where they are in the store.
    pub unreadable: Vec<String>,
}

impl Client {
    /// Moves tokens to the first key of the service's key file; with `generate` to one that is made first. One call moves
    /// some thousands.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn rekey(&self, generate: bool) -> Result<Rekeyed, Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body {
            generate: bool,
        }
        let to = To { path: &["operator", "rekey"], name: "the call that changes the key", since: None };
        self.send_json(Method::PUT, &to, &Body { generate }).await
    }
}
