//! `/v1/acl/templated-polic...`: what the built-in templates are, and what they would give.

use std::collections::BTreeMap;

use serde::Serialize;

use super::error::ApiError;
use super::json::Fields;
use super::request::Ask;
use super::response::Reply;
use super::state::Rooms;
use crate::acl::model::templated::{SyntheticPolicy, TEMPLATES, Template, find};
use crate::acl::service::caller::Privilege;
use crate::acl::store::Freshness;

/// A template as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TemplateView {
    template_name: &'static str,
    schema: &'static str,
    template: &'static str,
    description: &'static str,
}

fn view(template: &Template) -> TemplateView {
    TemplateView {
        template_name: template.name,
        schema: template.schema,
        template: template.text,
        description: template.description,
    }
}

/// The policy that a template would give. It is not stored.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PreviewView {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    description: String,
    rules: String,
    hash: String,
}

async fn may_read(rooms: &Rooms, ask: &Ask) -> Result<(), ApiError> {
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let namespace = ask.namespace(&caller, None)?;
    Ok(caller.require(Privilege::AclRead, &namespace)?)
}

fn named(ask: &Ask) -> Result<&'static Template, ApiError> {
    find(&ask.subject).ok_or(ApiError::NoTemplate)
}

pub(super) async fn list(rooms: &Rooms, ask: &Ask) -> Result<Reply, ApiError> {
    may_read(rooms, ask).await?;
    let all: BTreeMap<&str, TemplateView> = TEMPLATES.iter().map(|template| (template.name, view(template))).collect();
    Ok(Reply::json(&all, ask.pretty())?)
}

pub(super) async fn read(rooms: &Rooms, ask: &Ask) -> Result<Reply, ApiError> {
    may_read(rooms, ask).await?;
    Ok(Reply::json(&view(named(ask)?), ask.pretty())?)
}

/// The body holds the template's variables; it may be left out where there are none.
pub(super) async fn preview(rooms: &Rooms, ask: &mut Ask) -> Result<Reply, ApiError> {
    let body = ask.bytes().await?;
    let variables = if body.iter().all(u8::is_ascii_whitespace) {
        serde_json::Map::new()
    } else {
        Fields::read(&body, "Templated policy variables")?.into_map()
    };
    may_read(rooms, ask).await?;
    let policy = SyntheticPolicy::of_template(named(ask)?.name, &variables, &[])
        .map_err(|reason| ApiError::Invalid(reason.to_string()))?;
    let SyntheticPolicy { id, name, description, rules, hash, .. } = policy;
    Ok(Reply::json(&PreviewView { id, name, description, rules, hash }, ask.pretty())?)
}
