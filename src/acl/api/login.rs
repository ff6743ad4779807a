//! `POST /v1/acl/login` and `POST /v1/acl/logout`.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::Value;

use super::body::{self, MAX_LOGIN};
use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, stated};
use super::response::{Changed, Reply};
use super::state::Rooms;
use super::tokens;
use crate::acl::service::login::StoredLogin;
use crate::acl::store::Freshness;

/// A token that the request carries plays no part.
pub(super) async fn log_in(rooms: &Rooms, ask: &mut Ask) -> Result<Reply, ApiError> {
    let body = match ask.body() {
        Some(body) => body::bytes(body, MAX_LOGIN).await?,
        None => zeroize::Zeroizing::default(),
    };
    let (login, stated) = request(&body)?;
    let namespace = ask.method_namespace(stated.as_deref())?;
    let (live, secret) = rooms.methods.login_stored(&namespace, &login).await.map_err(ApiError::Login)?;
    let view = tokens::view(rooms, &live.token, secret.reveal(), Freshness::Linearizable).await?;
    Ok(Reply::json(&view, ask.pretty())?)
}

fn request(body: &[u8]) -> Result<(StoredLogin, Option<String>), ApiError> {
    let mut fields = Fields::read(body, Fields::REQUEST)?;
    let namespace = stated(&mut fields)?;
    let method = fields.text("AuthMethod")?.unwrap_or_default();
    let bearer = SecretString::from(fields.text("BearerToken")?.unwrap_or_default());
    let mut meta = BTreeMap::new();
    for (name, value) in fields.map("Meta")?.unwrap_or_default() {
        let Value::String(value) = value else {
            return Err(fields.refusal("Meta", &"a value in it is no text").into());
        };
        meta.insert(name, value);
    }
    fields.finish()?;
    Ok((StoredLogin { method, unverified_jwt: bearer, meta }, namespace))
}

/// The token that is brought is destroyed; only one that a login made.
pub(super) async fn log_out(rooms: &Rooms, ask: &Ask) -> Result<Changed, ApiError> {
    let secret = ask.secret.as_ref().ok_or(ApiError::NoLogout)?;
    let live = rooms.directory.log_out(secret).await?;
    let birth = live.token.value.birth();
    let (namespace, what) = (birth.namespace.clone(), birth.accessor_id.to_string());
    Ok(Changed { reply: Reply::json(&true, ask.pretty())?, by: Some(birth.accessor_id), namespace, what })
}
