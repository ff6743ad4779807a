//! Which operation is done by whom.

use super::error::ApiError;
use super::operation::Operation as Do;
use super::request::Ask;
use super::response::{Done, Seen};
use super::state::Rooms;
use super::{
    auth_methods, authorize, binding_rules, bootstrap, login, namespaces, policies, rekey, roles, snapshot, templated,
    tokens, verify,
};
use crate::acl::store::Freshness;

/// Does a read once.
pub(super) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    match ask.operation {
        Do::TokenSelf => tokens::read_self(rooms, ask, freshness).await,
        Do::TokenRead => tokens::read(rooms, ask, freshness).await,
        Do::TokenList => tokens::list(rooms, ask, freshness).await,
        Do::RoleRead => roles::read(rooms, ask, freshness).await,
        Do::RoleReadByName => roles::read_by_name(rooms, ask, freshness).await,
        Do::RoleList => roles::list(rooms, ask, freshness).await,
        Do::PolicyRead => policies::read(rooms, ask, freshness).await,
        Do::PolicyReadByName => policies::read_by_name(rooms, ask, freshness).await,
        Do::PolicyList => policies::list(rooms, ask, freshness).await,
        Do::NamespaceRead => namespaces::read(rooms, ask, freshness).await,
        Do::NamespaceList => namespaces::list(rooms, ask, freshness).await,
        Do::MethodRead => auth_methods::read(rooms, ask, freshness).await,
        Do::MethodList => auth_methods::list(rooms, ask, freshness).await,
        Do::RuleRead => binding_rules::read(rooms, ask, freshness).await,
        Do::RuleList => binding_rules::list(rooms, ask, freshness).await,
        _ => Err(ApiError::NoRoute { versioned: true }),
    }
}

/// Does an operation that may write.
pub(super) async fn write(rooms: &Rooms, ask: &mut Ask) -> Result<Done, ApiError> {
    let changed = match ask.operation {
        Do::TokenCreate => tokens::create(rooms, ask).await,
        Do::TokenUpdate => tokens::update(rooms, ask).await,
        Do::TokenDelete => return tokens::delete(rooms, ask).await,
        Do::TokenClone => tokens::clone(rooms, ask).await,
        Do::RoleCreate => roles::create(rooms, ask).await,
        Do::RoleUpdate => roles::update(rooms, ask).await,
        Do::RoleDelete => return roles::delete(rooms, ask).await,
        Do::PolicyCreate => policies::create(rooms, ask).await,
        Do::PolicyUpdate => policies::update(rooms, ask).await,
        Do::PolicyDelete => return policies::delete(rooms, ask).await,
        Do::NamespaceCreate => namespaces::create(rooms, ask).await,
        Do::NamespaceUpdate => namespaces::update(rooms, ask).await,
        Do::NamespaceDelete => return namespaces::delete(rooms, ask).await,
        Do::TemplateList => return templated::list(rooms, ask).await.map(Done::Nothing),
        Do::TemplateRead => return templated::read(rooms, ask).await.map(Done::Nothing),
        Do::TemplatePreview => return templated::preview(rooms, ask).await.map(Done::Nothing),
        Do::Authorize => return authorize::authorize(rooms, ask).await.map(Done::Nothing),
        Do::MethodCreate => auth_methods::create(rooms, ask).await,
        Do::MethodUpdate => auth_methods::update(rooms, ask).await,
        Do::MethodDelete => return auth_methods::delete(rooms, ask).await,
        Do::RuleCreate => binding_rules::create(rooms, ask).await,
        Do::RuleUpdate => binding_rules::update(rooms, ask).await,
        Do::RuleDelete => return binding_rules::delete(rooms, ask).await,
        Do::Login => return login::log_in(rooms, ask).await.map(Done::Nothing),
        Do::Logout => login::log_out(rooms, ask).await,
        Do::Bootstrap => bootstrap::bootstrap(rooms, ask).await,
        Do::Verify => return verify::verify(rooms, ask).await.map(Done::Nothing),
        Do::Rekey => return rekey::rekey(rooms, ask).await,
        Do::SnapshotTake => return snapshot::take(rooms, ask).await.map(Done::Nothing),
        Do::SnapshotRestore => return snapshot::restore(rooms, ask).await.map(Done::Nothing),
        _ => Err(ApiError::NoRoute { versioned: true }),
    };
    changed.map(Done::Changed)
}
