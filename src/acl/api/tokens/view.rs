//! JSON view of a token.

use serde::Serialize;

use crate::api::error::ApiError;
use crate::api::request::DEFAULT_PARTITION;
use crate::api::state::ApiState;
use crate::api::views::{self, LinkView};
use crate::model::id::Id;
use crate::model::links::{NodeIdentity, ServiceIdentity, TemplatedPolicy};
use crate::model::timestamp::Timestamp;
use crate::model::token::TokenRecord;
use crate::service::links::{Link, LinkKind};
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// JSON view of a token, without empty lists and `ExpirationTTL`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TokenView<'a> {
    #[serde(rename = "AccessorID")]
    accessor_id: Id,
    #[serde(rename = "SecretID")]
    secret_id: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<LinkView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<LinkView>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    service_identities: &'a [ServiceIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    node_identities: &'a [NodeIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    templated_policies: &'a [TemplatedPolicy],
    local: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_method_namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_time: Option<Timestamp>,
    create_time: Timestamp,
    hash: String,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// Builds the view of a token, with the current names of its policies and roles.
pub(crate) async fn view<'a>(
    state: &ApiState,
    token: &'a Stored<TokenRecord>,
    secret: &'a str,
    freshness: Freshness,
) -> Result<TokenView<'a>, ApiError> {
    let namespace = &token.value.immutable().namespace;
    let links = &token.value.links;
    let policies = state.service.links().load(namespace, LinkKind::Policy, &links.policies, freshness).await?;
    let roles = state.service.links().load(namespace, LinkKind::Role, &token.value.roles, freshness).await?;
    Ok(view_with_links(token, secret, policies, roles))
}

/// Builds the view of a token from links with their names.
pub(super) fn view_with_links<'a>(
    token: &'a Stored<TokenRecord>,
    secret: &'a str,
    policies: Vec<Link>,
    roles: Vec<Link>,
) -> TokenView<'a> {
    let record = &token.value;
    let immutable = token.value.immutable();
    let links = &token.value.links;
    TokenView {
        accessor_id: immutable.accessor_id,
        secret_id: secret,
        description: &record.description,
        policies: views::link_views(policies),
        roles: views::link_views(roles),
        service_identities: &links.service_identities,
        node_identities: &links.node_identities,
        templated_policies: &links.templated_policies,
        local: immutable.local,
        auth_method: record.auth_method(),
        auth_method_namespace: immutable.login.as_ref().map(|login| login.namespace.as_str()),
        expiration_time: immutable.expiration_time,
        create_time: immutable.create_time,
        hash: record.content_hash(),
        namespace: immutable.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: token.created.0,
        modify_index: token.modified.0,
    }
}
