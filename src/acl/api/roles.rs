//! `/v1/acl/role...`.

use http::StatusCode;
use serde::Serialize;

use super::auth::Here;
use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, DEFAULT_PARTITION, Kind, stated};
use super::response::{Changed, Done, Reply, Seen};
use super::state::Rooms;
use super::views::{self, LinkView, READ_ONLY};
use super::watched::Watched;
use crate::acl::model::id::Id;
use crate::acl::model::links::{NodeIdentity, ServiceIdentity, TemplatedPolicy};
use crate::acl::model::role::RoleRecord;
use crate::acl::service::keys;
use crate::acl::service::links::Linked;
use crate::acl::service::repository::Stored;
use crate::acl::service::roles::RoleDraft;
use crate::acl::store::Freshness;

/// A role as it is shown. Lists without an entry are left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RoleView<'a> {
    #[serde(rename = "ID")]
    id: Id,
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<LinkView>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    service_identities: &'a [ServiceIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    node_identities: &'a [NodeIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    templated_policies: &'a [TemplatedPolicy],
    hash: String,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// A role as it is shown, with the names that its policies have now.
pub(super) async fn view<'a>(
    rooms: &Rooms,
    role: &'a Stored<RoleRecord>,
    freshness: Freshness,
) -> Result<RoleView<'a>, ApiError> {
    let record = &role.value;
    let policies = rooms.directory.shown(&record.namespace, Linked::Policy, &record.links.policies, freshness).await?;
    Ok(RoleView {
        id: record.id,
        name: &record.name,
        description: &record.description,
        policies: views::links(policies),
        service_identities: &record.links.service_identities,
        node_identities: &record.links.node_identities,
        templated_policies: &record.links.templated_policies,
        hash: record.content_hash(),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: role.created.0,
        modify_index: role.modified.0,
    })
}

/// The draft, the id and the namespace of a body.
fn draft(mut fields: Fields) -> Result<(RoleDraft, Option<String>, Option<String>), ApiError> {
    let id = fields.text("ID")?.filter(|id| !id.is_empty());
    let namespace = stated(&mut fields)?;
    let draft = RoleDraft {
        name: fields.text("Name")?.unwrap_or_default(),
        description: fields.text("Description")?.unwrap_or_default(),
        links: views::links_draft(&mut fields)?,
    };
    fields.pass_over(READ_ONLY);
    fields.finish()?;
    Ok((draft, id, namespace))
}

const KIND: Kind = Kind("role", "Role");

pub(super) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, id, stated) = draft(ask.fields("Role").await?)?;
    KIND.no_id(id.as_deref())?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let role = rooms.directory.create_role(&here.caller, &here.namespace, &draft).await?;
    let view = view(rooms, &role, Freshness::Linearizable).await?;
    here.changed(ask, &view, role.value.id)
}

pub(super) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated_id, stated) = draft(ask.fields("Role").await?)?;
    let id = ask.id_of(KIND, stated_id.as_deref())?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let role = rooms.directory.update_role(&here.caller, &here.namespace, id, &draft).await?;
    let view = view(rooms, &role, Freshness::Linearizable).await?;
    here.changed(ask, &view, id)
}

pub(super) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let id = ask.id(KIND.0)?;
    let here = Here::writing(rooms, ask, None).await?;
    let deleted = rooms.directory.delete_role(&here.caller, &here.namespace, id).await?;
    here.deleted(ask, deleted, id)
}

pub(super) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let id = ask.id(KIND.0)?;
    let here = Here::reading(rooms, ask, freshness).await?;
    let kinds = [keys::within("policy", Some(&here.namespace)), keys::role(&here.namespace, id).as_str().to_owned()];
    let watched = Watched::take(rooms, kinds, freshness).await?;
    let role = rooms.directory.role(&here.caller, &here.namespace, id, freshness).await?;
    let links = role.as_ref().is_some_and(|role| !role.value.links.policies.is_empty());
    let (index, watch) = watched.without("policy", links).end();
    shown(rooms, ask, role, freshness).await.map(|reply| Seen { reply, index, watch, until: None })
}

pub(super) async fn read_by_name(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    if ask.subject.is_empty() {
        return Err(ApiError::Invalid("Missing role Name".to_owned()));
    }
    let here = Here::reading(rooms, ask, freshness).await?;
    // A role can come to this name, or leave it: any of them may be the one.
    let kinds = ["policy", "role"].map(|kind| keys::within(kind, Some(&here.namespace)));
    let watched = Watched::take(rooms, kinds, freshness).await?;
    let role = rooms.directory.role_by_name(&here.caller, &here.namespace, &ask.subject, freshness).await?;
    let links = role.as_ref().is_some_and(|role| !role.value.links.policies.is_empty());
    let (index, watch) = watched.without("policy", links).end();
    shown(rooms, ask, role, freshness).await.map(|reply| Seen { reply, index, watch, until: None })
}

async fn shown(
    rooms: &Rooms,
    ask: &Ask,
    role: Option<Stored<RoleRecord>>,
    freshness: Freshness,
) -> Result<Reply, ApiError> {
    match role {
        Some(role) => Ok(Reply::json(&view(rooms, &role, freshness).await?, ask.pretty())?),
        None => Ok(Reply::text(StatusCode::NOT_FOUND, "Requested role does not exist: ACL not found")),
    }
}

pub(super) async fn list(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let policy = ask.query.get("policy")?.map(str::to_owned);
    let caller = ask.caller(rooms, freshness).await?;
    let scope = ask.scope(&caller, None)?;
    let kinds = ["policy", "role"].map(|kind| keys::within(kind, scope.named()));
    let watched = Watched::take(rooms, kinds, freshness).await?;
    let found = rooms.directory.roles(&caller, scope.named(), policy.as_deref(), freshness).await?;
    let mut roles = Vec::with_capacity(found.entries.len());
    for role in &found.entries {
        roles.push(view(rooms, role, freshness).await?);
    }
    let mut reply = Reply::json(&roles, ask.pretty())?;
    reply.left_out = found.left_out;
    let links = found.entries.iter().any(|role| !role.value.links.policies.is_empty());
    let (index, watch) = watched.without("policy", links).end();
    Ok(Seen { reply, index, watch, until: None })
}
