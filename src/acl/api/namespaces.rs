//! `/v1/namespace...`.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Serialize;

use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, DEFAULT_PARTITION, partition};
use super::response::{Changed, Done, Reply, Seen};
use super::state::Rooms;
use super::views::{self, LinkView, READ_ONLY};
use super::watched::Watched;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::namespace::{Defaults, NamespaceRecord};
use crate::acl::model::timestamp::Timestamp;
use crate::acl::service::keys;
use crate::acl::service::links::Linked;
use crate::acl::service::namespaces::{DefaultsDraft, NamespaceDraft};
use crate::acl::service::repository::Stored;
use crate::acl::store::Freshness;

/// A namespace as it is shown. What it does not have is left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct NamespaceView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "ACLs", skip_serializing_if = "Option::is_none")]
    acls: Option<DefaultsView>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    meta: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// The defaults of a namespace. Both lists are always present: the Terraform provider for Consul reads them unasked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct DefaultsView {
    policy_defaults: Vec<LinkView>,
    role_defaults: Vec<LinkView>,
}

/// A namespace as it is shown, with the names that its defaults have now.
async fn view<'a>(
    rooms: &Rooms,
    namespace: &'a Stored<NamespaceRecord>,
    freshness: Freshness,
) -> Result<NamespaceView<'a>, ApiError> {
    let record = &namespace.value;
    let acls = match &record.defaults {
        Some(defaults) => Some(defaults_view(rooms, defaults, freshness).await?),
        None => None,
    };
    Ok(NamespaceView {
        name: record.name.as_str(),
        description: &record.description,
        acls,
        meta: &record.meta,
        deleted_at: record.deleted_at,
        partition: DEFAULT_PARTITION,
        create_index: namespace.created.0,
        modify_index: namespace.modified.0,
    })
}

async fn defaults_view(rooms: &Rooms, defaults: &Defaults, freshness: Freshness) -> Result<DefaultsView, ApiError> {
    let (directory, home) = (&rooms.directory, NamespaceName::default_one());
    let policies = directory.shown(&home, Linked::Policy, &defaults.policies, freshness).await?;
    let roles = directory.shown(&home, Linked::Role, &defaults.roles, freshness).await?;
    Ok(DefaultsView { policy_defaults: views::links(policies), role_defaults: views::links(roles) })
}

/// The name and the draft of a body.
fn draft(mut fields: Fields) -> Result<(Option<String>, NamespaceDraft), ApiError> {
    let name = fields.text("Name")?.filter(|name| !name.is_empty());
    partition(&mut fields)?;
    let mut draft = NamespaceDraft {
        description: fields.text("Description")?.unwrap_or_default(),
        meta: fields.pairs("Meta")?,
        ..NamespaceDraft::default()
    };
    if let Some(mut acls) = fields.object("ACLs")? {
        draft.defaults = Some(DefaultsDraft {
            policies: views::link_drafts(&mut acls, "PolicyDefaults")?,
            roles: views::link_drafts(&mut acls, "RoleDefaults")?,
        });
        acls.finish()?;
    }
    fields.pass_over(READ_ONLY);
    fields.pass_over(&["DeletedAt"]);
    fields.finish()?;
    Ok((name, draft))
}

pub(super) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (name, draft) = draft(ask.fields("Namespace").await?)?;
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let made = rooms.directory.create_namespace(&caller, &name.unwrap_or_default(), &draft).await?;
    let reply = Reply::json(&view(rooms, &made, Freshness::Linearizable).await?, ask.pretty())?;
    Ok(Changed { reply, by: caller.accessor(), what: made.value.name.to_string(), namespace: made.value.name.clone() })
}

pub(super) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (stated, draft) = draft(ask.fields("Namespace").await?)?;
    let name = path_name(ask)?;
    if stated.is_some_and(|stated| stated.parse() != Ok(name.clone())) {
        return Err(ApiError::Invalid("Namespace Name in URL and payload do not match".to_owned()));
    }
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let namespace = rooms.directory.update_namespace(&caller, &name, &draft).await?;
    let reply = Reply::json(&view(rooms, &namespace, Freshness::Linearizable).await?, ask.pretty())?;
    Ok(Changed { reply, by: caller.accessor(), what: name.to_string(), namespace: name })
}

/// Nothing but the status says how it went.
pub(super) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let name = path_name(ask)?;
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let marked = rooms.directory.delete_namespace(&caller, &name).await?;
    let reply = Reply::empty(StatusCode::OK);
    if !marked {
        return Ok(Done::Nothing(reply));
    }
    Ok(Done::Changed(Changed { reply, by: caller.accessor(), what: name.to_string(), namespace: name }))
}

fn path_name(ask: &Ask) -> Result<NamespaceName, ApiError> {
    if ask.subject.is_empty() {
        return Err(ApiError::Invalid("Missing namespace Name".to_owned()));
    }
    ask.subject.parse().map_err(|reason| {
        let name: String = ask.subject.chars().take(128).collect();
        ApiError::Invalid(format!("Invalid namespace {name:?}: {reason}"))
    })
}

pub(super) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let name = path_name(ask)?;
    let caller = ask.caller(rooms, freshness).await?;
    let kinds = defaults_kinds().into_iter().chain([keys::namespace(&name).as_str().to_owned()]);
    let watched = Watched::take(rooms, kinds, freshness).await?;
    let found = rooms.directory.seen_namespace(&caller, &name, freshness).await?;
    let (index, watch) = shown_kinds(watched, found.as_slice()).end();
    let reply = match found {
        Some(namespace) => Reply::json(&view(rooms, &namespace, freshness).await?, ask.pretty())?,
        None => Reply::text(StatusCode::NOT_FOUND, format!("Namespace {:?} does not exist", name.as_str())),
    };
    Ok(Seen { reply, index, watch, until: None })
}

/// The kinds of what namespaces have as defaults.
fn defaults_kinds() -> [String; 2] {
    Watched::linked(Some(&NamespaceName::default_one()))
}

/// Drops the kinds of which the namespaces have no defaults.
fn shown_kinds(watched: Watched, namespaces: &[Stored<NamespaceRecord>]) -> Watched {
    let defaults = || namespaces.iter().filter_map(|namespace| namespace.value.defaults.as_ref());
    let policies = defaults().any(|defaults| !defaults.policies.is_empty());
    let roles = defaults().any(|defaults| !defaults.roles.is_empty());
    watched.without("policy", policies).without("role", roles)
}

pub(super) async fn list(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let caller = ask.caller(rooms, freshness).await?;
    let kinds = defaults_kinds().into_iter().chain(["namespace/".to_owned()]);
    let watched = Watched::take(rooms, kinds, freshness).await?;
    let found = rooms.directory.namespaces(&caller, freshness).await?;
    let (index, watch) = shown_kinds(watched, &found.entries).end();
    let mut namespaces = Vec::with_capacity(found.entries.len());
    for namespace in &found.entries {
        namespaces.push(view(rooms, namespace, freshness).await?);
    }
    let mut reply = Reply::json(&namespaces, ask.pretty())?;
    reply.left_out = found.left_out;
    Ok(Seen { reply, index, watch, until: None })
}
