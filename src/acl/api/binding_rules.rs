//! `/v1/acl/binding-rule...`.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::auth::Here;
use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, DEFAULT_PARTITION, Kind, stated};
use super::response::{Changed, Done, Reply, Seen};
use super::state::Rooms;
use super::views::READ_ONLY;
use crate::acl::model::binding_rule::BindingRuleRecord;
use crate::acl::model::id::Id;
use crate::acl::service::binding_rules::BindingRuleDraft;
use crate::acl::service::keys;
use crate::acl::service::repository::Stored;
use crate::acl::store::Freshness;

/// A binding rule as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BindingRuleView<'a> {
    #[serde(rename = "ID")]
    id: Id,
    description: &'a str,
    auth_method: &'a str,
    selector: &'a str,
    bind_type: &'static str,
    bind_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bind_vars: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

fn view(rule: &Stored<BindingRuleRecord>) -> BindingRuleView<'_> {
    let record = &rule.value;
    BindingRuleView {
        id: record.id,
        description: &record.description,
        auth_method: &record.auth_method,
        selector: &record.selector,
        bind_type: record.bind.kind.as_str(),
        bind_name: &record.bind.name,
        bind_vars: record.bind.vars.as_ref(),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: rule.created.0,
        modify_index: rule.modified.0,
    }
}

/// The draft, the id and the namespace of a body.
fn draft(mut fields: Fields) -> Result<(BindingRuleDraft, Option<String>, Option<String>), ApiError> {
    let namespace = stated(&mut fields)?;
    let bind_vars = fields.map("BindVars")?;
    let mut text = |name| fields.text(name).map(Option::unwrap_or_default);
    let id = Some(text("ID")?).filter(|id| !id.is_empty());
    let draft = BindingRuleDraft {
        description: text("Description")?,
        auth_method: text("AuthMethod")?,
        selector: text("Selector")?,
        bind_type: text("BindType")?,
        bind_name: text("BindName")?,
        bind_vars,
    };
    fields.pass_over(READ_ONLY);
    fields.finish()?;
    Ok((draft, id, namespace))
}

const KIND: Kind = Kind("binding rule", "Binding Rule");

pub(super) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, id, stated) = draft(ask.fields("BindingRule").await?)?;
    KIND.no_id(id.as_deref())?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let rule = rooms.directory.create_binding_rule(&here.caller, &here.namespace, &draft).await?;
    let view = view(&rule);
    here.changed(ask, &view, rule.value.id)
}

pub(super) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated_id, stated) = draft(ask.fields("BindingRule").await?)?;
    let id = ask.id_of(KIND, stated_id.as_deref())?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let rule = rooms.directory.update_binding_rule(&here.caller, &here.namespace, id, &draft).await?;
    let view = view(&rule);
    here.changed(ask, &view, id)
}

pub(super) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let id = ask.id(KIND.0)?;
    let here = Here::writing(rooms, ask, None).await?;
    let deleted = rooms.directory.delete_binding_rule(&here.caller, &here.namespace, id).await?;
    here.deleted(ask, deleted, id)
}

pub(super) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let id = ask.id(KIND.0)?;
    let here = Here::reading(rooms, ask, freshness).await?;
    let watch = keys::binding_rule(&here.namespace, id).as_str().to_owned();
    let index = rooms.directory.records().revision(&watch, freshness).await?;
    let reply = match rooms.directory.binding_rule(&here.caller, &here.namespace, id, freshness).await? {
        Some(rule) => Reply::json(&view(&rule), ask.pretty())?,
        None => Reply::text(StatusCode::NOT_FOUND, "Requested binding rule does not exist: ACL not found"),
    };
    Ok(Seen { reply, index, watch: vec![watch], until: None })
}

pub(super) async fn list(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let method = ask.query.get("authmethod")?;
    let caller = ask.caller(rooms, freshness).await?;
    let scope = ask.scope(&caller, None)?;
    let watch = keys::within("binding-rule", scope.named());
    let found = rooms.directory.binding_rules(&caller, scope.named(), method, freshness).await?;
    let rules: Vec<_> = found.entries.iter().map(view).collect();
    let mut reply = Reply::json(&rules, ask.pretty())?;
    reply.left_out = found.left_out;
    Ok(Seen { reply, index: found.revision, watch: vec![watch], until: None })
}
