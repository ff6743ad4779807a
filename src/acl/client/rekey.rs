//! What operators do with the service itself.

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::{Client, To};
use super::error::Error;
use super::query::Query;

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

/// Result of checking all records of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Verified {
    /// Tells if no damage was found.
    pub clean: bool,
    /// Records that are there.
    pub records: u64,
    /// Those of them that have no checksum: an older version wrote them, or the store keeps none.
    pub without_checksum: u64,
    /// Records whose checksum does not fit.
    pub damaged: u64,
    /// The keys of the first of them.
    pub damaged_keys: Vec<String>,
    /// Kinds of which records are missing, or are others than were written.
    pub damaged_kinds: Vec<String>,
    /// Tells if the checksums of the file's pages fit, where they were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<bool>,
}

impl Client {
    /// Looks whether all records of the server are there and whole.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn verify(&self) -> Result<Verified, Error> {
        let to = To { path: &["operator", "verify"], name: "the call that verifies the store", since: None };
        Ok(self.in_namespace(None).get(&to, &[], &Query::default()).await?.value)
    }

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
