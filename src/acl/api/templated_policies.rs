//! Handlers of `/v1/acl/templated-policies` and `/v1/acl/templated-policy`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::error::ApiError;
use super::json::JsonFields;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::state::ApiState;
use crate::model::templated::{BuiltinTemplate, SyntheticPolicy, TEMPLATES, find, render_for_link};
use crate::service::caller::Privilege;
use crate::store::Freshness;

/// JSON view of a template.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TemplateView {
    template_name: &'static str,
    schema: &'static str,
    template: &'static str,
    description: &'static str,
}

fn view(template: &BuiltinTemplate) -> TemplateView {
    TemplateView {
        template_name: template.name,
        schema: template.schema,
        template: template.text,
        description: template.description,
    }
}

/// JSON view of the policy that a template generates; it is not stored.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TemplatePreview {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    description: String,
    rules: String,
    hash: String,
}

async fn require_acl_read(state: &ApiState, request: &ApiRequest) -> Result<(), ApiError> {
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let namespace = request.namespace(&caller, None)?;
    Ok(caller.require(Privilege::AclRead, &namespace)?)
}

fn template_from_path(request: &ApiRequest) -> Result<&'static BuiltinTemplate, ApiError> {
    find(&request.subject).ok_or(ApiError::UnknownTemplate)
}

pub(super) async fn list(state: &ApiState, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
    require_acl_read(state, request).await?;
    let all: BTreeMap<&str, TemplateView> = TEMPLATES.iter().map(|template| (template.name, view(template))).collect();
    Ok(ApiResponse::json(&all, request.pretty())?)
}

pub(super) async fn read(state: &ApiState, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
    require_acl_read(state, request).await?;
    Ok(ApiResponse::json(&view(template_from_path(request)?), request.pretty())?)
}

/// Generates the policy of a template with the variables in the body; an empty body has none.
pub(super) async fn preview(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = request.read_body().await?;
    let variables = if body.iter().all(u8::is_ascii_whitespace) {
        serde_json::Map::new()
    } else {
        JsonFields::parse(&body, "Templated policy variables")?.into_map()
    };
    require_acl_read(state, request).await?;
    let template = template_from_path(request)?;
    let policy = render_for_link(template, &variables)
        .and_then(|_| SyntheticPolicy::from_template(template.name, &variables, &[]))
        .map_err(|reason| ApiError::TemplateVariables { reason: reason.to_string() })?;
    let SyntheticPolicy { id, name, description, rules, hash, .. } = policy;
    Ok(ApiResponse::json(&TemplatePreview { id, name, description, rules, hash }, request.pretty())?)
}
