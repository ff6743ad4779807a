//! Dispatch of operations to their handlers.

use super::error::ApiError;
use super::operation::Operation as Op;
use super::request::ApiRequest;
use super::response::{ReadResult, WriteResult};
use super::state::ApiState;
use super::{
    auth_methods, authorize, binding_rules, bootstrap, explain, login, namespaces, policies, rekey, roles, snapshot,
    templated_policies, tokens, verify,
};
use crate::store::Freshness;

/// Performs a read once.
pub(super) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    match request.operation {
        Op::TokenSelf => tokens::read_self(state, request, freshness).await,
        Op::TokenRead => tokens::read(state, request, freshness).await,
        Op::TokenList => tokens::list(state, request, freshness).await,
        Op::RoleRead => roles::read(state, request, freshness).await,
        Op::RoleReadByName => roles::read_by_name(state, request, freshness).await,
        Op::RoleList => roles::list(state, request, freshness).await,
        Op::PolicyRead => policies::read(state, request, freshness).await,
        Op::PolicyReadByName => policies::read_by_name(state, request, freshness).await,
        Op::PolicyList => policies::list(state, request, freshness).await,
        Op::NamespaceRead => namespaces::read(state, request, freshness).await,
        Op::NamespaceList => namespaces::list(state, request, freshness).await,
        Op::MethodRead => auth_methods::read(state, request, freshness).await,
        Op::MethodList => auth_methods::list(state, request, freshness).await,
        Op::RuleRead => binding_rules::read(state, request, freshness).await,
        Op::RuleList => binding_rules::list(state, request, freshness).await,
        _ => Err(ApiError::RouteNotFound { versioned: true }),
    }
}

/// Performs an operation that may write.
pub(super) async fn write(state: &ApiState, request: &mut ApiRequest) -> Result<WriteResult, ApiError> {
    let changed = match request.operation {
        Op::TokenCreate => tokens::create(state, request).await,
        Op::TokenUpdate => tokens::update(state, request).await,
        Op::TokenDelete => return tokens::delete(state, request).await,
        Op::TokenClone => tokens::clone(state, request).await,
        Op::RoleCreate => roles::create(state, request).await,
        Op::RoleUpdate => roles::update(state, request).await,
        Op::RoleDelete => return roles::delete(state, request).await,
        Op::PolicyCreate => policies::create(state, request).await,
        Op::PolicyUpdate => policies::update(state, request).await,
        Op::PolicyDelete => return policies::delete(state, request).await,
        Op::NamespaceCreate => namespaces::create(state, request).await,
        Op::NamespaceUpdate => namespaces::update(state, request).await,
        Op::NamespaceDelete => return namespaces::delete(state, request).await,
        Op::TemplateList => return templated_policies::list(state, request).await.map(WriteResult::Unchanged),
        Op::TemplateRead => return templated_policies::read(state, request).await.map(WriteResult::Unchanged),
        Op::TemplatePreview => return templated_policies::preview(state, request).await.map(WriteResult::Unchanged),
        Op::TokenExplain => return explain::explain(state, request).await.map(WriteResult::Unchanged),
        Op::Authorize => return authorize::authorize(state, request).await.map(WriteResult::Unchanged),
        Op::MethodCreate => auth_methods::create(state, request).await,
        Op::MethodUpdate => auth_methods::update(state, request).await,
        Op::MethodDelete => return auth_methods::delete(state, request).await,
        Op::RuleCreate => binding_rules::create(state, request).await,
        Op::RuleUpdate => binding_rules::update(state, request).await,
        Op::RuleDelete => return binding_rules::delete(state, request).await,
        Op::Login => return login::log_in(state, request).await.map(WriteResult::Unchanged),
        Op::Logout => login::log_out(state, request).await,
        Op::Bootstrap => bootstrap::bootstrap(state, request).await,
        Op::Verify => return verify::verify(state, request).await.map(WriteResult::Unchanged),
        Op::Rekey => return rekey::rekey(state, request).await,
        Op::SnapshotTake => return snapshot::export(state, request).await.map(WriteResult::Unchanged),
        Op::SnapshotRestore => return snapshot::restore(state, request).await.map(WriteResult::Unchanged),
        _ => Err(ApiError::RouteNotFound { versioned: true }),
    };
    changed.map(WriteResult::Changed)
}
