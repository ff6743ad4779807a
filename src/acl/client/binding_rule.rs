//! Binding rules, which give links to the tokens of logins.

use serde::{Deserialize, Serialize};

use super::records::AclRecord;
use crate::model::binding_rule::NewBindingRule;
use crate::model::go_json::empty_is_none;
use crate::model::id::Id;

/// A binding rule as the server returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindingRule {
    /// Unique id, assigned by the server.
    #[serde(rename = "ID")]
    pub id: Id,
    /// Content of the rule.
    #[serde(flatten)]
    pub rule: NewBindingRule,
    /// Namespace of the record.
    #[serde(default, deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default)]
    pub(crate) create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub(crate) modify_index: u64,
}

impl AclRecord for BindingRule {
    type Id = Id;
    type New = NewBindingRule;
    type Update = NewBindingRule;
    /// Auth method of the rules.
    type Filter = Option<String>;

    const KIND: &'static str = "binding rule";
    const PLURAL: &'static str = "binding rules";
    const PATH: &'static [&'static str] = &["acl", "binding-rule"];
    const LIST_PATH: &'static [&'static str] = &["acl", "binding-rules"];

    fn parameters(auth_method: &Option<String>) -> Vec<(&'static str, String)> {
        auth_method.iter().map(|method| ("authmethod", method.clone())).collect()
    }
}
