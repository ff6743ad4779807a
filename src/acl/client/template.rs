//! Templates of policies.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::{Client, To};
use super::error::Error;
use super::policy::Policy;
use super::query::{Query, Reading};
use super::wire::null_is_default;

/// A template of policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Template {
    /// Its name, such as `builtin/service`.
    pub template_name: String,
    /// What it is for.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// The variables that it takes, as a JSON schema.
    #[serde(deserialize_with = "null_is_default")]
    pub schema: String,
    /// Its text.
    #[serde(deserialize_with = "null_is_default")]
    pub template: String,
}

fn to<'a>(path: &'a [&'a str]) -> To<'a> {
    To { path, name: "calls for templated policies", since: None }
}

impl Client {
    /// Lists the templates, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_templates(&self, query: &Query) -> Result<Reading<BTreeMap<String, Template>>, Error> {
        self.get(&to(&["acl", "templated-policies"]), &[], query).await
    }

    /// Reads a template.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_template(&self, name: &str, query: &Query) -> Result<Reading<Template>, Error> {
        self.get(&to(&["acl", "templated-policy", "name", name]), &[], query).await
    }

    /// Shows the policy that a template makes of variables; nothing is stored.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn preview_template(&self, name: &str, variables: &Map<String, Value>) -> Result<Policy, Error> {
        self.send_json(Method::POST, &to(&["acl", "templated-policy", "preview", name]), variables).await
    }
}
