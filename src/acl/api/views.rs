//! JSON views and body fields that several kinds of records share.

use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;
use super::json::JsonFields;
use crate::model::go_duration::GoDuration;
use crate::model::id::Id;
use crate::model::links::{AclLink, AclLinks, NodeIdentity, ServiceIdentity, TemplatedPolicy};
use crate::service::links::Link;

/// Link to a policy or role, with its current name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LinkView {
    #[serde(rename = "ID")]
    pub(super) id: Id,
    pub(super) name: String,
}

pub(super) fn link_views(links: Vec<Link>) -> Vec<LinkView> {
    links.into_iter().map(|Link { id, name }| LinkView { id, name }).collect()
}

/// Read-only fields, which writes ignore.
pub(super) const READ_ONLY: &[&str] = &["CreateIndex", "ModifyIndex", "Hash"];

/// Takes the links of a token or role from a body.
pub(super) fn parse_links(fields: &mut JsonFields) -> Result<AclLinks, ApiError> {
    let policies = parse_link_list(fields, "Policies")?;
    let service_identities = fields.objects("ServiceIdentities", |fields| {
        Ok(ServiceIdentity {
            service_name: fields.string("ServiceName")?.unwrap_or_default(),
            datacenters: fields.strings("Datacenters")?,
        })
    })?;
    let node_identities = fields.objects("NodeIdentities", |fields| {
        Ok(NodeIdentity {
            node_name: fields.string("NodeName")?.unwrap_or_default(),
            datacenter: fields.string("Datacenter")?.unwrap_or_default(),
        })
    })?;
    let templated_policies = fields.objects("TemplatedPolicies", |fields| {
        fields.ignore(&["TemplateID"]);
        Ok(TemplatedPolicy {
            template_name: fields.string("TemplateName")?.unwrap_or_default(),
            template_variables: fields.map("TemplateVariables")?,
            datacenters: fields.strings("Datacenters")?,
        })
    })?;
    Ok(AclLinks { policies, templated_policies, service_identities, node_identities })
}

/// Takes a list of links from a body.
pub(super) fn parse_link_list(fields: &mut JsonFields, name: &str) -> Result<Vec<AclLink>, ApiError> {
    Ok(fields.objects(name, |fields| Ok(AclLink { id: fields.string("ID")?, name: fields.string("Name")? }))?)
}

/// Takes a duration from a body: a string such as `5m`, or a number of nanoseconds.
pub(super) fn parse_duration(fields: &mut JsonFields, name: &str) -> Result<GoDuration, ApiError> {
    match fields.take(name) {
        None => Ok(GoDuration::default()),
        Some(Value::String(text)) if text.is_empty() => Ok(GoDuration::default()),
        Some(Value::String(text)) => text.parse().map_err(|reason| fields.invalid_value(name, &reason).into()),
        Some(Value::Number(nanos)) if nanos.is_i64() => Ok(GoDuration(nanos.as_i64().unwrap_or_default())),
        Some(_) => {
            let reason = "neither a duration such as \"5m\" nor a whole number of nanoseconds";
            Err(fields.invalid_value(name, &reason).into())
        }
    }
}
