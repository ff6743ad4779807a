//! Tokens are made, changed and deleted.

use super::draft::draft;
use super::path_id;
use super::view::view;
use crate::acl::api::auth::Here;
use crate::acl::api::error::ApiError;
use crate::acl::api::request::Ask;
use crate::acl::api::response::{Changed, Done};
use crate::acl::api::state::Rooms;
use crate::acl::model::id::Id;
use crate::acl::service::tokens::Made;
use crate::acl::store::Freshness;

pub(in crate::acl::api) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("Token").await?)?;
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let made = rooms.directory.create_token(&here.caller, &here.namespace, &draft).await?;
    told(rooms, ask, here, &made).await
}

pub(in crate::acl::api) async fn clone(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("Token").await?)?;
    let source = path_id(ask)?;
    // The source and the clone are in one namespace: the body names it where the query and the headers say nothing.
    let named = if ask.names_namespace() { None } else { stated.as_deref() };
    let here = Here::writing(rooms, ask, named).await?;
    if stated.is_some_and(|stated| stated.parse() != Ok(here.namespace.clone())) {
        let text = format!("A clone stays in the namespace of the token that it is made from: {}", here.namespace);
        return Err(ApiError::Invalid(text));
    }
    let made = rooms.directory.clone_token(&here.caller, &here.namespace, source, &draft.description).await?;
    told(rooms, ask, here, &made).await
}

async fn told(rooms: &Rooms, ask: &Ask, here: Here, made: &Made) -> Result<Changed, ApiError> {
    let token = &made.live.token;
    let view = view(rooms, token, made.secret.reveal(), Freshness::Linearizable).await?;
    here.changed(ask, &view, token.value.birth().accessor_id)
}

pub(in crate::acl::api) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("Token").await?)?;
    let accessor = path_id(ask)?;
    if draft.accessor.as_ref().is_some_and(|stated| stated.parse() != Ok(accessor)) {
        return Err(ApiError::Invalid("Token Accessor ID in URL and payload do not match".to_owned()));
    }
    let here = Here::writing(rooms, ask, stated.as_deref()).await?;
    let token = rooms.directory.update_token(&here.caller, &here.namespace, accessor, &draft).await?;
    let secret = rooms.directory.secret(&token.value).await?;
    let view = view(rooms, &token, secret.reveal(), Freshness::Linearizable).await?;
    here.changed(ask, &view, accessor)
}

pub(in crate::acl::api) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let accessor: Id = path_id(ask)?;
    let here = Here::writing(rooms, ask, None).await?;
    let deleted = rooms.directory.delete_token(&here.caller, &here.namespace, accessor).await?;
    here.deleted(ask, deleted, accessor)
}
