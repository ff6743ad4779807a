//! `/v1/acl/auth-method...`.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::auth::Here;
use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, DEFAULT_PARTITION, stated};
use super::response::{Changed, Done, Reply, Seen};
use super::state::Rooms;
use super::views::{READ_ONLY, duration};
use crate::acl::model::auth_method::{AuthMethodRecord, Locality};
use crate::acl::model::go_duration::GoDuration;
use crate::acl::service::auth_methods::AuthMethodDraft;
use crate::acl::service::keys;
use crate::acl::service::repository::Stored;
use crate::acl::store::Freshness;

/// An auth method as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AuthMethodView<'a> {
    name: &'a str,
    #[serde(rename = "Type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    display_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "MaxTokenTTL", skip_serializing_if = "Option::is_none")]
    max_token_ttl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_locality: Option<&'static str>,
    /// Lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

fn view(method: &Stored<AuthMethodRecord>, whole: bool) -> AuthMethodView<'_> {
    let record = &method.value;
    AuthMethodView {
        name: &record.name,
        kind: record.kind.as_str(),
        display_name: &record.display_name,
        description: &record.description,
        max_token_ttl: record.max_token_ttl.map(|ttl| GoDuration::of(ttl).to_string()),
        token_locality: record.locality.map(Locality::as_str),
        config: whole.then_some(&record.config),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: method.created.0,
        modify_index: method.modified.0,
    }
}

/// The draft and the namespace of a body.
fn draft(mut fields: Fields) -> Result<(AuthMethodDraft, Option<String>), ApiError> {
    let namespace = stated(&mut fields)?;
    let max_token_ttl = duration(&mut fields, "MaxTokenTTL")?;
    let config = fields.map("Config")?.unwrap_or_default();
    let mut text = |name| fields.text(name).map(Option::unwrap_or_default);
    let draft = AuthMethodDraft {
        name: text("Name")?,
        kind: text("Type")?,
        display_name: text("DisplayName")?,
        description: text("Description")?,
        max_token_ttl,
        locality: text("TokenLocality")?,
        config,
    };
    fields.pass_over(READ_ONLY);
    fields.finish()?;
    Ok((draft, namespace))
}

pub(super) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("AuthMethod").await?)?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let method = rooms.directory.create_auth_method(&here.caller, &here.namespace, &draft).await?;
    let view = view(&method, true);
    here.changed(ask, &view, draft.name)
}

pub(super) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (mut draft, stated) = draft(ask.fields("AuthMethod").await?)?;
    let name = path_name(ask)?;
    if draft.name.is_empty() {
        draft.name = name.to_owned();
    } else if draft.name != name {
        return Err(ApiError::Invalid("Auth Method Name in URL and payload do not match".to_owned()));
    }
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let method = rooms.directory.update_auth_method(&here.caller, &here.namespace, &draft).await?;
    let view = view(&method, true);
    here.changed(ask, &view, draft.name)
}

pub(super) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let name = path_name(ask)?;
    let here = Here::writing(rooms, ask, None).await?;
    let deleted = rooms.directory.delete_auth_method(&here.caller, &here.namespace, name).await?;
    here.deleted(ask, deleted, name)
}

fn path_name(ask: &Ask) -> Result<&str, ApiError> {
    match ask.subject.as_str() {
        "" => Err(ApiError::Invalid("Missing auth method Name".to_owned())),
        name => Ok(name),
    }
}

pub(super) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let name = path_name(ask)?;
    let here = Here::reading(rooms, ask, freshness).await?;
    let watch = keys::auth_method(&here.namespace, name).as_str().to_owned();
    let index = rooms.directory.records().revision(&watch, freshness).await?;
    let reply = match rooms.directory.auth_method(&here.caller, &here.namespace, name, freshness).await? {
        Some(method) => Reply::json(&view(&method, true), ask.pretty())?,
        None => Reply::text(StatusCode::NOT_FOUND, "Requested auth method does not exist: ACL not found"),
    };
    Ok(Seen { reply, index, watch: vec![watch], until: None })
}

pub(super) async fn list(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let caller = ask.caller(rooms, freshness).await?;
    let scope = ask.scope(&caller, None)?;
    let watch = keys::within("auth-method", scope.named());
    let found = rooms.directory.auth_methods(&caller, scope.named(), freshness).await?;
    let methods: Vec<_> = found.entries.iter().map(|method| view(method, false)).collect();
    let mut reply = Reply::json(&methods, ask.pretty())?;
    reply.left_out = found.left_out;
    Ok(Seen { reply, index: found.revision, watch: vec![watch], until: None })
}
