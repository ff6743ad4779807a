//! Authorization requests: the rights of the client's token.

use http::Method;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;

/// Access to a resource that the token may have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AuthorizationRequest {
    /// Kind of resource, such as `service` or `acl`.
    pub resource: String,
    /// `read`, `write` or `list`.
    pub access: String,
    /// Name of the resource; empty if its kind has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub segment: String,
}

/// Response to an [`AuthorizationRequest`], which it repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AuthorizationResponse {
    /// Repeated from the request.
    pub resource: String,
    /// Repeated from the request.
    pub(crate) access: String,
    /// Repeated from the request.
    pub segment: String,
    /// True if the token has the access.
    pub allow: bool,
}

impl AclClient {
    /// Returns the rights of this client's token, in the order of the requests; at most 64 at once.
    pub async fn authorize(
        &self,
        questions: &[AuthorizationRequest],
    ) -> Result<Vec<AuthorizationResponse>, AclClientError> {
        let endpoint =
            Endpoint { path: &["internal", "acl", "authorize"], name: "the authorize call".into(), since: None };
        self.send_json(Method::POST, &endpoint, &questions).await
    }
}
