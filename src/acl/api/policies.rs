//! `/v1/acl/polic...`.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;

use super::auth::Here;
use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, DEFAULT_PARTITION, Kind, stated};
use super::response::{Changed, Done, Reply, Seen};
use super::state::Rooms;
use super::views::READ_ONLY;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::policy::PolicyRecord;
use crate::acl::model::templated::SyntheticPolicy;
use crate::acl::service::keys;
use crate::acl::service::policies::PolicyDraft;
use crate::acl::service::repository::Stored;
use crate::acl::store::Freshness;

/// A policy as it is shown; in a list it has no rules, and says so of its datacenters when it counts everywhere.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PolicyView<'a> {
    #[serde(rename = "ID")]
    id: String,
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a str>,
    #[serde(skip_serializing_if = "Datacenters::is_left_out")]
    datacenters: Datacenters<'a>,
    hash: Cow<'a, str>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Datacenters<'a> {
    Some(&'a [String]),
    Null(()),
    LeftOut,
}

impl Datacenters<'_> {
    fn is_left_out(&self) -> bool {
        matches!(self, Self::LeftOut)
    }
}

pub(super) fn view(policy: &Stored<PolicyRecord>, in_list: bool) -> PolicyView<'_> {
    let record = &policy.value;
    PolicyView {
        id: record.id.to_string(),
        name: &record.name,
        description: &record.description,
        rules: (!in_list).then_some(&record.rules),
        datacenters: match (record.datacenters.is_empty(), in_list) {
            (false, _) => Datacenters::Some(&record.datacenters),
            (true, true) => Datacenters::Null(()),
            (true, false) => Datacenters::LeftOut,
        },
        hash: record.content_hash().into(),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: policy.created.0,
        modify_index: policy.modified.0,
    }
}

/// A policy that is not stored, of a token in that namespace.
pub(super) fn synthetic_view<'a>(policy: &'a SyntheticPolicy, namespace: &'a NamespaceName) -> PolicyView<'a> {
    PolicyView {
        id: policy.id.clone(),
        name: &policy.name,
        description: &policy.description,
        rules: Some(&policy.rules),
        datacenters: match policy.datacenters.as_slice() {
            [] => Datacenters::LeftOut,
            some => Datacenters::Some(some),
        },
        hash: (&policy.hash).into(),
        namespace: namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: 0,
        modify_index: 0,
    }
}

fn draft(mut fields: Fields) -> Result<(PolicyDraft, Option<String>, Option<String>), ApiError> {
    let id = fields.text("ID")?.filter(|id| !id.is_empty());
    let namespace = stated(&mut fields)?;
    let draft = PolicyDraft {
        name: fields.text("Name")?.unwrap_or_default(),
        description: fields.text("Description")?.unwrap_or_default(),
        rules: fields.text("Rules")?.unwrap_or_default(),
        datacenters: fields.texts("Datacenters")?,
    };
    fields.pass_over(READ_ONLY);
    fields.finish()?;
    Ok((draft, id, namespace))
}

const KIND: Kind = Kind("policy", "Policy");

pub(super) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, id, stated) = draft(ask.fields("Policy").await?)?;
    KIND.no_id(id.as_deref())?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let policy = rooms.directory.create_policy(&here.caller, &here.namespace, &draft).await?;
    let view = view(&policy, false);
    here.changed(ask, &view, policy.value.id)
}

pub(super) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated_id, stated) = draft(ask.fields("Policy").await?)?;
    let id = ask.id_of(KIND, stated_id.as_deref())?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let policy = rooms.directory.update_policy(&here.caller, &here.namespace, id, &draft).await?;
    let view = view(&policy, false);
    here.changed(ask, &view, id)
}

pub(super) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let id = ask.id(KIND.0)?;
    let here = Here::writing(rooms, ask, None).await?;
    let deleted = rooms.directory.delete_policy(&here.caller, &here.namespace, id).await?;
    here.deleted(ask, deleted, id)
}

pub(super) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let id = ask.id(KIND.0)?;
    let here = Here::reading(rooms, ask, freshness).await?;
    let watch = keys::policy(&here.namespace, id).as_str().to_owned();
    let index = rooms.directory.records().revision(&watch, freshness).await?;
    let policy = rooms.directory.policy(&here.caller, &here.namespace, id, freshness).await?;
    shown(ask, policy.as_ref()).map(|reply| Seen { reply, index, watch: vec![watch], until: None })
}

pub(super) async fn read_by_name(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    if ask.subject.is_empty() {
        return Err(ApiError::Invalid("Missing policy Name".to_owned()));
    }
    let here = Here::reading(rooms, ask, freshness).await?;
    let watch = keys::within("policy", Some(&here.namespace));
    let index = rooms.directory.records().revision(&watch, freshness).await?;
    let policy = rooms.directory.policy_by_name(&here.caller, &here.namespace, &ask.subject, freshness).await?;
    shown(ask, policy.as_ref()).map(|reply| Seen { reply, index, watch: vec![watch], until: None })
}

fn shown(ask: &Ask, policy: Option<&Stored<PolicyRecord>>) -> Result<Reply, ApiError> {
    match policy {
        Some(policy) => Ok(Reply::json(&view(policy, false), ask.pretty())?),
        None => Ok(Reply::text(StatusCode::NOT_FOUND, "Requested policy does not exist: ACL not found")),
    }
}

pub(super) async fn list(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let caller = ask.caller(rooms, freshness).await?;
    let scope = ask.scope(&caller, None)?;
    let watch = keys::within("policy", scope.named());
    let found = rooms.directory.policies(&caller, scope.named(), freshness).await?;
    let policies: Vec<PolicyView<'_>> = found.entries.iter().map(|policy| view(policy, true)).collect();
    let mut reply = Reply::json(&policies, ask.pretty())?;
    reply.left_out = found.left_out;
    Ok(Seen { reply, index: found.revision, watch: vec![watch], until: None })
}
