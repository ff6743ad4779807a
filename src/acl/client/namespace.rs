//! Namespaces.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::records::AclRecord;
use crate::model::go_json::{deserialize_time, null_is_default};
use crate::model::namespace::{NamespaceDefaults, NewNamespace};
use crate::model::timestamp::Timestamp;

/// A namespace as the server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Namespace {
    /// Name, unique in its namespace.
    pub name: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Default policies and roles of its tokens.
    #[serde(
        rename = "ACLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "NamespaceDefaults::is_empty"
    )]
    pub acls: NamespaceDefaults,
    /// Metadata of the owner.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Time at which it was marked for deletion; it disappears once its records are deleted.
    #[serde(deserialize_with = "deserialize_time", skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// Index of its creation.
    pub(crate) create_index: u64,
    /// Index of its last change.
    pub(crate) modify_index: u64,
}

impl From<&Namespace> for NewNamespace {
    fn from(namespace: &Namespace) -> Self {
        let Namespace { name, description, acls, meta, .. } = namespace.clone();
        Self { name, description, acls: Some(acls).filter(|acls| !acls.is_empty()), meta }
    }
}

impl AclRecord for Namespace {
    type Id = str;
    type New = NewNamespace;
    type Update = NewNamespace;
    type Filter = ();

    const KIND: &'static str = "namespace";
    const PLURAL: &'static str = "namespaces";
    const PATH: &'static [&'static str] = &["namespace"];
    const LIST_PATH: &'static [&'static str] = &["namespaces"];
    const SINCE: Option<&'static str> = Some("1.7.0");
    const IS_IN_NAMESPACE: bool = false;
}
