//! Handler of `POST /v1/acl/token/ACCESSOR/explain`: says what a token may do, and which rule of which policy decides.

use serde::Serialize;

use super::authorize::AuthorizationRequest;
use super::error::{ApiError, record_not_found};
use super::request::ApiRequest;
use super::request_context::RequestContext;
use super::response::ApiResponse;
use super::state::ApiState;
use crate::model::authorize::{DecidingPolicy, Reason};
use crate::model::names::NamespaceName;
use crate::model::token::TokenRecord;
use crate::service::tokens::ExpandedToken;
use crate::store::Freshness;

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ExplanationResponse<'a> {
    #[serde(flatten)]
    request: AuthorizationRequest,
    allow: bool,
    reason: &'static str,
    #[serde(flatten)]
    policy: Option<PolicyFields<'a>>,
}

/// The deciding policy and its rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PolicyFields<'a> {
    #[serde(rename = "PolicyID")]
    policy_id: String,
    policy_name: &'a str,
    rule: String,
    /// The policy is a default of the token's namespace.
    namespace_default: bool,
}

/// Explains the decisions about a list of operations. Needs `acl:read` for the token of a path, and nothing for `self`.
pub(super) async fn explain(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let parsed = AuthorizationRequest::read_all(request).await?;
    let freshness = Freshness::Linearizable;
    let token = if request.subject == "self" {
        request.authenticate(state, freshness).await?.live.token.value.clone()
    } else {
        let accessor = request.id_from_path_as("token", "AccessorID")?;
        let context = RequestContext::for_read(state, request, freshness).await?;
        match state.service.tokens().get(&context.caller, &context.namespace, accessor, freshness).await? {
            Some(token) => token.value,
            None => return Ok(record_not_found("token")),
        }
    };
    let all = ExpandedToken::load(&state.service, &token, freshness).await?;
    let explained = state.service.tokens().explain(&token, freshness).await?;
    let mut responses = Vec::with_capacity(parsed.len());
    for authorization in parsed {
        let namespace = namespace(&token, authorization.namespace.as_deref())?;
        let (access, resource) = authorization.parse()?;
        let explanation = explained.explain(&resource, access, &namespace);
        let (reason, policy) = describe(explanation.reason, &all);
        let allow = explanation.decision.is_allowed();
        responses.push(ExplanationResponse { request: authorization, allow, reason, policy });
    }
    Ok(ApiResponse::json(&responses, request.pretty())?)
}

/// Returns the namespace of a request: the one that it names, or the token's.
fn namespace(token: &TokenRecord, name: Option<&str>) -> Result<NamespaceName, ApiError> {
    match name {
        Some("*") => Err(ApiError::WildcardNamespace),
        Some(name) => ApiRequest::parse_namespace(name),
        None => Ok(token.immutable().namespace.clone()),
    }
}

fn describe(reason: Reason, all: &ExpandedToken) -> (&'static str, Option<PolicyFields<'_>>) {
    match reason {
        Reason::Rule(policy) => ("rule", Some(policy_fields(policy, all))),
        Reason::DefaultPolicy => ("no rule matches: the default policy of the server decides", None),
        Reason::NoAclRule => ("no rule matches: the default policy never grants acl", None),
        Reason::NoNamespaceRule => ("no rule for `operator` or for the namespace itself matches", None),
    }
}

fn policy_fields(policy: DecidingPolicy, all: &ExpandedToken) -> PolicyFields<'_> {
    let policy_id = policy.id.to_string();
    let stored = all
        .policies
        .iter()
        .find(|policy| policy.value.id.to_string() == policy_id)
        .map(|policy| policy.value.name.as_str());
    let synthetic = all.synthetic.iter().find(|policy| policy.id == policy_id).map(|policy| policy.name.as_str());
    let policy_name = stored.or(synthetic).unwrap_or_default();
    PolicyFields { policy_id, policy_name, rule: policy.rule, namespace_default: policy.from_defaults }
}
