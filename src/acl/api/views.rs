//! What the kinds of records have in common when they are shown.

use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;
use super::json::Fields;
use crate::acl::model::go_duration::GoDuration;
use crate::acl::model::id::Id;
use crate::acl::model::links::{NodeIdentity, ServiceIdentity, TemplatedPolicy};
use crate::acl::service::links::{Link, LinkDraft, LinksDraft};

/// A link.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LinkView {
    #[serde(rename = "ID")]
    pub(super) id: Id,
    pub(super) name: String,
}

pub(super) fn links(links: Vec<Link>) -> Vec<LinkView> {
    links.into_iter().map(|Link { id, name }| LinkView { id, name }).collect()
}

/// Fields that reads give and that a write leaves aside, whatever they say.
pub(super) const READ_ONLY: &[&str] = &["CreateIndex", "ModifyIndex", "Hash"];

/// Takes the links that tokens and roles have alike.
pub(super) fn links_draft(fields: &mut Fields) -> Result<LinksDraft, ApiError> {
    let policies = link_drafts(fields, "Policies")?;
    let service_identities = fields.objects("ServiceIdentities", |fields| {
        Ok(ServiceIdentity {
            service_name: fields.text("ServiceName")?.unwrap_or_default(),
            datacenters: fields.texts("Datacenters")?,
        })
    })?;
    let node_identities = fields.objects("NodeIdentities", |fields| {
        Ok(NodeIdentity {
            node_name: fields.text("NodeName")?.unwrap_or_default(),
            datacenter: fields.text("Datacenter")?.unwrap_or_default(),
        })
    })?;
    let templated_policies = fields.objects("TemplatedPolicies", |fields| {
        fields.pass_over(&["TemplateID"]);
        Ok(TemplatedPolicy {
            template_name: fields.text("TemplateName")?.unwrap_or_default(),
            template_variables: fields.map("TemplateVariables")?,
            datacenters: fields.texts("Datacenters")?,
        })
    })?;
    Ok(LinksDraft { policies, service_identities, node_identities, templated_policies })
}

/// Takes a list of links.
pub(super) fn link_drafts(fields: &mut Fields, name: &str) -> Result<Vec<LinkDraft>, ApiError> {
    Ok(fields.objects(name, |fields| Ok(LinkDraft { id: fields.text("ID")?, name: fields.text("Name")? }))?)
}

/// Takes a span: a text such as `5m`, or a number of nanoseconds.
pub(super) fn duration(fields: &mut Fields, name: &str) -> Result<GoDuration, ApiError> {
    match fields.take(name) {
        None => Ok(GoDuration::default()),
        Some(Value::String(text)) if text.is_empty() => Ok(GoDuration::default()),
        Some(Value::String(text)) => text.parse().map_err(|reason| fields.refusal(name, &reason).into()),
        Some(Value::Number(nanos)) if nanos.is_i64() => Ok(GoDuration(nanos.as_i64().unwrap_or_default())),
        Some(_) => {
            let reason = "neither a duration such as \"5m\" nor a whole number of nanoseconds";
            Err(fields.refusal(name, &reason).into())
        }
    }
}
