//! JSON view of a token with all policies and roles that its rights come from.

use serde::Serialize;

use super::view::TokenView;
use crate::api::error::ApiError;
use crate::api::policies::{self, PolicyView};
use crate::api::records::{ApiRecord as _, ViewForm, load_view};
use crate::api::roles::RoleView;
use crate::api::state::ApiState;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::policy::PolicyRecord;
use crate::service::tokens::ExpandedToken;
use crate::store::Freshness;

/// Expanded view of a token; empty lists are `null`, as in Consul.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExpandedView<'a> {
    #[serde(flatten)]
    token: TokenView<'a>,
    expanded_policies: Option<Vec<PolicyView<'a>>>,
    expanded_roles: Option<Vec<RoleView<'a>>>,
    #[serde(rename = "NamespaceDefaultPolicyIDs")]
    namespace_default_policy_ids: Option<&'a [Id]>,
    #[serde(rename = "NamespaceDefaultRoleIDs")]
    namespace_default_role_ids: Option<&'a [Id]>,
    #[serde(rename = "AgentACLDefaultPolicy")]
    agent_acl_default_policy: &'static str,
    #[serde(rename = "AgentACLDownPolicy")]
    agent_acl_down_policy: &'static str,
    resolved_by_agent: String,
}

pub(super) async fn view<'a>(
    state: &ApiState,
    token: TokenView<'a>,
    namespace: &'a NamespaceName,
    all: &'a ExpandedToken,
    freshness: Freshness,
) -> Result<ExpandedView<'a>, ApiError> {
    let stored = all.policies.iter().map(|policy| PolicyRecord::view(policy, ViewForm::Single, Vec::new()));
    let synthetic = all.synthetic.iter().map(|policy| policies::synthetic_view(policy, namespace));
    let policies: Vec<PolicyView<'a>> = stored.chain(synthetic).collect();
    let mut roles = Vec::with_capacity(all.roles.len());
    for role in &all.roles {
        roles.push(load_view(state, role, freshness).await?);
    }
    Ok(ExpandedView {
        token,
        expanded_policies: Some(policies).filter(|list| !list.is_empty()),
        expanded_roles: Some(roles).filter(|list| !list.is_empty()),
        namespace_default_policy_ids: Some(all.default_policies.as_slice()).filter(|list| !list.is_empty()),
        namespace_default_role_ids: Some(all.default_roles.as_slice()).filter(|list| !list.is_empty()),
        agent_acl_default_policy: state.service.default_policy.as_str(),
        // Without its store this server refuses all requests.
        agent_acl_down_policy: "deny",
        resolved_by_agent: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    })
}
