//! Tokens are read.

use http::StatusCode;

use super::view::view;
use super::{expanded, path_id};
use crate::acl::api::auth::Here;
use crate::acl::api::error::ApiError;
use crate::acl::api::request::Ask;
use crate::acl::api::response::{Reply, Seen};
use crate::acl::api::state::Rooms;
use crate::acl::api::watched::Watched;
use crate::acl::service::keys;
use crate::acl::store::Freshness;

/// No privilege is asked for, and the secret is shown: the caller holds it already.
pub(in crate::acl::api) async fn read_self(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let secret = ask.secret.as_ref().ok_or(ApiError::NoToken)?;
    // Taken before the read: what changes in between is newer than it.
    let kinds = Watched::linked(None).into_iter().chain([keys::within("token", None)]);
    let watched = Watched::take(rooms, kinds, freshness).await?;
    let live = rooms.directory.live_by_secret(secret, freshness).await?.ok_or(ApiError::NoToken)?;
    let token = &live.token.value;
    let birth = token.birth();
    let watched = watched.without("policy", !token.links.policies.is_empty()).without("role", !token.roles.is_empty());
    let (index, mut watch) = watched.end();
    // The token itself, in place of all tokens.
    watch.pop();
    watch.push(keys::token(&birth.namespace, birth.accessor_id).as_str().to_owned());
    let until = birth.expiration_time;
    let view = view(rooms, &live.token, secret.reveal(), freshness).await?;
    Ok(Seen { reply: Reply::json(&view, ask.pretty())?, index, watch, until })
}

pub(in crate::acl::api) async fn read(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let accessor = path_id(ask)?;
    let expanded = ask.query.flag("expanded")?;
    let here = Here::reading(rooms, ask, freshness).await?;
    let own = keys::token(&here.namespace, accessor).as_str().to_owned();
    // An expanded read shows policies and roles of `default` too, which the namespace gives.
    let linked = Watched::linked(Some(&here.namespace).filter(|_| !expanded));
    let gives = expanded.then(|| keys::namespace(&here.namespace).as_str().to_owned());
    let watched = Watched::take(rooms, linked.into_iter().chain(gives).chain([own]), freshness).await?;
    let Some(token) = rooms.directory.token(&here.caller, &here.namespace, accessor, freshness).await? else {
        let reply = Reply::text(StatusCode::NOT_FOUND, "Requested token does not exist: ACL not found");
        let (index, watch) = watched.without("policy", false).without("role", false).without("namespace", false).end();
        return Ok(Seen { reply, index, watch, until: None });
    };
    let links_policies = expanded || !token.value.links.policies.is_empty();
    let links_roles = expanded || !token.value.roles.is_empty();
    let (index, watch) = watched.without("policy", links_policies).without("role", links_roles).end();
    let secret = rooms.directory.secret_for(&here.caller, &token.value).await?;
    let view = view(rooms, &token, secret.reveal(), freshness).await?;
    let reply = if expanded {
        let all = rooms.directory.expanded(&token.value, freshness).await?;
        let home = &token.value.birth().namespace;
        Reply::json(&expanded::view(rooms, view, home, &all, freshness).await?, ask.pretty())?
    } else {
        Reply::json(&view, ask.pretty())?
    };
    Ok(Seen { reply, index, watch, until: token.value.birth().expiration_time })
}
