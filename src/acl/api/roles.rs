//! JSON of roles.

use serde::Serialize;

use super::error::ApiError;
use super::json::JsonFields;
use super::records::{ApiRecord, ViewForm};
use super::request::DEFAULT_PARTITION;
use super::views::{self, LinkView};
use crate::model::id::Id;
use crate::model::links::{NodeIdentity, ServiceIdentity, TemplatedPolicy};
use crate::model::role::{NewRole, RoleRecord};
use crate::service::typed_store::Stored;

/// JSON view of a role, without empty lists.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RoleView<'a> {
    #[serde(rename = "ID")]
    id: Id,
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<LinkView>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    service_identities: &'a [ServiceIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    node_identities: &'a [NodeIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    templated_policies: &'a [TemplatedPolicy],
    hash: String,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

impl ApiRecord for RoleRecord {
    const TITLE: &'static str = "Role";
    const BODY: &'static str = "Role";
    const FILTER: Option<&'static str> = Some("policy");
    const LINKS_POLICIES: bool = true;
    type View<'a> = RoleView<'a>;

    fn linked_policies(&self) -> &[Id] {
        &self.links.policies
    }

    fn view(role: &Stored<Self>, _form: ViewForm, policies: Vec<LinkView>) -> RoleView<'_> {
        let record = &role.value;
        RoleView {
            id: record.id,
            name: &record.name,
            description: &record.description,
            policies,
            service_identities: &record.links.service_identities,
            node_identities: &record.links.node_identities,
            templated_policies: &record.links.templated_policies,
            hash: record.content_hash(),
            namespace: record.namespace.as_str(),
            partition: DEFAULT_PARTITION,
            create_index: role.created.0,
            modify_index: role.modified.0,
        }
    }

    fn parse_draft(fields: &mut JsonFields) -> Result<(Option<String>, NewRole), ApiError> {
        let id = fields.string("ID")?;
        let draft = NewRole {
            name: fields.string("Name")?.unwrap_or_default(),
            description: fields.string("Description")?.unwrap_or_default(),
            links: views::parse_links(fields)?,
        };
        Ok((id, draft))
    }
}
