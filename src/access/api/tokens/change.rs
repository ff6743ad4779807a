//! Tokens are made, changed and deleted.

use super::draft::draft;
use super::path_id;
use super::view::view;
use crate::access::api::ask::Ask;
use crate::access::api::error::ApiError;
use crate::access::api::reply::{Changed, Done, Reply};
use crate::access::api::rooms::Rooms;
use crate::access::model::id::Id;
use crate::access::model::names::NamespaceName;
use crate::access::service::caller::Caller;
use crate::access::service::tokens::Made;
use crate::access::store::Freshness;

pub(in crate::access::api) async fn create(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("Token").await?)?;
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let namespace = ask.namespace(&caller, stated.as_deref())?;
    let made = rooms.directory.create_token(&caller, &namespace, &draft).await?;
    told(rooms, ask, &caller, namespace, &made).await
}

pub(in crate::access::api) async fn clone(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("Token").await?)?;
    let source = path_id(ask)?;
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let namespace = ask.namespace(&caller, None)?;
    if stated.is_some_and(|stated| stated.parse() != Ok(namespace.clone())) {
        let text = format!("A clone stays in the namespace of the token that it is made from: {namespace}");
        return Err(ApiError::Invalid(text));
    }
    let made = rooms.directory.clone_token(&caller, &namespace, source, &draft.description).await?;
    told(rooms, ask, &caller, namespace, &made).await
}

async fn told(
    rooms: &Rooms,
    ask: &Ask,
    caller: &Caller,
    namespace: NamespaceName,
    made: &Made,
) -> Result<Changed, ApiError> {
    let token = &made.live.token;
    let view = view(rooms, token, made.secret.reveal(), Freshness::Linearizable).await?;
    let reply = Reply::json(&view, ask.pretty())?;
    Ok(Changed { reply, by: caller.accessor(), namespace, what: token.value.birth().accessor_id.to_string() })
}

pub(in crate::access::api) async fn update(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let (draft, stated) = draft(ask.fields("Token").await?)?;
    let accessor = path_id(ask)?;
    if draft.accessor.as_ref().is_some_and(|stated| stated.parse() != Ok(accessor)) {
        return Err(ApiError::Invalid("Token Accessor ID in URL and payload do not match".to_owned()));
    }
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let namespace = ask.namespace(&caller, stated.as_deref())?;
    let token = rooms.directory.update_token(&caller, &namespace, accessor, &draft).await?;
    let secret = rooms.directory.secret(&token.value)?;
    let view = view(rooms, &token, secret.reveal(), Freshness::Linearizable).await?;
    let reply = Reply::json(&view, ask.pretty())?;
    Ok(Changed { reply, by: caller.accessor(), namespace, what: accessor.to_string() })
}

pub(in crate::access::api) async fn delete(rooms: &Rooms, ask: &Ask) -> Result<Done, ApiError> {
    let accessor: Id = path_id(ask)?;
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let namespace = ask.namespace(&caller, None)?;
    let deleted = rooms.directory.delete_token(&caller, &namespace, accessor).await?;
    let reply = Reply::json(&deleted, ask.pretty())?;
    if !deleted {
        return Ok(Done::Nothing(reply));
    }
    Ok(Done::Changed(Changed { reply, by: caller.accessor(), namespace, what: accessor.to_string() }))
}
