//! Templates of policies.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::acl_client::{AclClient, Endpoint};
use super::error::AclClientError;
use super::policy::Policy;
use super::query::{QueryOptions, ReadResponse};
use crate::model::go_json::null_is_default;

/// Built-in template of policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PolicyTemplate {
    /// Name, such as `builtin/service`.
    pub template_name: String,
    /// Purpose of the template.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// JSON schema of its variables.
    #[serde(deserialize_with = "null_is_default")]
    pub schema: String,
    /// HCL text with Go template actions.
    #[serde(deserialize_with = "null_is_default")]
    pub template: String,
}

fn endpoint<'a>(path: &'a [&'a str]) -> Endpoint<'a> {
    Endpoint { path, name: "calls for templated policies".into(), since: None }
}

impl AclClient {
    /// Lists the templates, by name.
    pub async fn list_templates(
        &self,
        query: &QueryOptions,
    ) -> Result<ReadResponse<BTreeMap<String, PolicyTemplate>>, AclClientError> {
        self.get(&endpoint(&["acl", "templated-policies"]), &[], query).await
    }

    /// Reads a template.
    pub async fn read_template(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<ReadResponse<PolicyTemplate>, AclClientError> {
        self.get(&endpoint(&["acl", "templated-policy", "name", name]), &[], query).await
    }

    /// Generates the policy of a template with variables; nothing is stored.
    pub async fn preview_template(&self, name: &str, variables: &Map<String, Value>) -> Result<Policy, AclClientError> {
        self.send_json(Method::POST, &endpoint(&["acl", "templated-policy", "preview", name]), variables).await
    }
}
