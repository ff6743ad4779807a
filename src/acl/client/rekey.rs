//! Operator calls: verification of the store and change of the key.

use http::Method;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;
use super::query::QueryOptions;

/// Progress of a change of the key that encrypts tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RekeyResponse {
    /// Key that encrypts new tokens.
    #[serde(rename = "KeyID")]
    pub key_id: String,
    /// Tokens that this call moved to the key.
    pub rewritten: u64,
    /// True if all tokens use the key; otherwise repeat the call, unless some tokens are unreadable.
    pub done: bool,
    /// Store keys of tokens that cannot be read.
    pub unreadable: Vec<String>,
}

/// Result of checking all records of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VerifyResponse {
    /// True if no damage was found.
    pub clean: bool,
    /// Number of records.
    pub records: u64,
    /// Records without a checksum: those of a store that keeps none, as etcd.
    pub without_checksum: u64,
    /// Records with a wrong checksum.
    pub damaged: u64,
    /// Keys of the first damaged records.
    pub damaged_keys: Vec<String>,
    /// Record kinds with missing or altered records.
    pub damaged_kinds: Vec<String>,
    /// True if the checksums of the file's pages match; `None` if they were not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<bool>,
}

impl AclClient {
    /// Verifies that all records of the server are present and undamaged.
    pub async fn verify(&self) -> Result<VerifyResponse, AclClientError> {
        let endpoint = Endpoint { path: &["operator", "verify"], name: "verify".into(), since: None };
        Ok(self.in_namespace(None).get(&endpoint, &[], &QueryOptions::default()).await?.value)
    }

    /// Moves some thousand tokens to the first key of the server's key file, or to a new key with `generate`.
    pub async fn rekey(&self, generate: bool) -> Result<RekeyResponse, AclClientError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body {
            generate: bool,
        }
        let endpoint = Endpoint { path: &["operator", "rekey"], name: "rekey".into(), since: None };
        self.send_json(Method::PUT, &endpoint, &Body { generate }).await
    }
}
