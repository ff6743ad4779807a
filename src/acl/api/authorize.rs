//! Handler of `POST /v1/internal/acl/authorize`: decides which of the named operations the caller may do.

use serde::Serialize;

use super::error::ApiError;
use super::json::JsonFields;
use super::request::{ApiRequest, take_namespace};
use super::response::ApiResponse;
use super::state::ApiState;
use crate::model::authorize::{Access, Resource};
use crate::store::Freshness;

/// Maximum number of authorization requests in a body, as in Consul.
const MAX_REQUESTS: usize = 64;

/// Authorization request, which the response repeats.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AuthorizationRequest {
    resource: String,
    access: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    segment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AuthorizationResponse {
    #[serde(flatten)]
    request: AuthorizationRequest,
    allow: bool,
}

fn parse_request(mut fields: JsonFields) -> Result<AuthorizationRequest, ApiError> {
    let namespace = take_namespace(&mut fields)?;
    let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
    let request = AuthorizationRequest {
        resource: text("Resource")?,
        access: text("Access")?,
        segment: text("Segment")?,
        namespace,
    };
    fields.finish()?;
    Ok(request)
}

impl AuthorizationRequest {
    /// Reads the requests of a body.
    pub(super) async fn read_all(request: &mut ApiRequest) -> Result<Vec<Self>, ApiError> {
        let bodies = JsonFields::parse_list(&request.read_body().await?, "Authorization")?;
        if bodies.len() > MAX_REQUESTS {
            return Err(ApiError::TooManyAuthorizations { count: bodies.len(), max: MAX_REQUESTS });
        }
        bodies.into_iter().map(parse_request).collect()
    }

    /// Parses the access and the resource.
    pub(super) fn parse(&self) -> Result<(Access, Resource<'_>), ApiError> {
        let access = match self.access.as_str() {
            "read" => Access::Read,
            "list" => Access::List,
            "write" => Access::Write,
            other => return Err(unknown("Access", other)),
        };
        let resource = Resource::parse(&self.resource, &self.segment);
        Ok((access, resource.ok_or_else(|| unknown("Resource", &self.resource))?))
    }
}

fn unknown(field: &'static str, text: &str) -> ApiError {
    let value = text.chars().take(128).collect();
    ApiError::UnknownAuthorization { field, value }
}

/// Authorizes a list of operations. Needs no privilege: a caller may know its own rights. Each authorization request
/// may name a namespace.
pub(super) async fn authorize(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let parsed = AuthorizationRequest::read_all(request).await?;
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let mut responses = Vec::with_capacity(parsed.len());
    for authorization in parsed {
        let namespace = request.namespace(&caller, authorization.namespace.as_deref())?;
        let (access, resource) = authorization.parse()?;
        let allow = caller.is_allowed(&resource, access, &namespace);
        responses.push(AuthorizationResponse { request: authorization, allow });
    }
    Ok(ApiResponse::json(&responses, request.pretty())?)
}
