//! `/v1/acl/token/...`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::Rooms;
use super::caller::caller;
use super::error::{ApiError, Door, NO_STORE};
use crate::access::model::id::Id;
use crate::access::model::secret::PlainSecret;
use crate::access::model::timestamp::Timestamp;
use crate::access::service::tokens::Live;

/// A token as the API shows it. Lists without an entry are left out; `ExpirationTTL` is never shown.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TokenView<'a> {
    #[serde(rename = "AccessorID")]
    accessor_id: Id,
    #[serde(rename = "SecretID")]
    secret_id: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<LinkView>,
    local: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_time: Option<Timestamp>,
    create_time: Timestamp,
    hash: String,
    namespace: &'a str,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
struct LinkView {
    #[serde(rename = "ID")]
    id: Id,
    #[serde(rename = "Name")]
    name: String,
}

pub(super) async fn read_self(State(rooms): State<Rooms>, headers: HeaderMap, uri: Uri) -> Response {
    read(&rooms, &headers, &uri).await.unwrap_or_else(|error| error.at(Door::Acl))
}

async fn read(rooms: &Rooms, headers: &HeaderMap, uri: &Uri) -> Result<Response, ApiError> {
    // No privilege is asked for: the caller holds the secret already.
    let (live, secret) = caller(rooms, headers, uri, Door::Acl).await?;
    let mut answer = Json(view(rooms, &live, &secret).await?).into_response();
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(answer)
}

async fn view<'a>(rooms: &Rooms, live: &'a Live, secret: &'a PlainSecret) -> Result<TokenView<'a>, ApiError> {
    let mut policies = Vec::new();
    for id in &live.record.links.policies {
        // A link whose policy was deleted is not shown.
        policies.extend(rooms.policies.name(*id).await?.map(|name| LinkView { id: *id, name }));
    }
    let birth = live.record.birth();
    Ok(TokenView {
        accessor_id: birth.accessor_id,
        secret_id: secret.reveal(),
        description: &live.record.description,
        policies,
        local: birth.local,
        auth_method: live.record.auth_method(),
        expiration_time: birth.expiration_time,
        create_time: birth.create_time,
        hash: live.record.content_hash(),
        namespace: &birth.namespace,
        create_index: live.created.0,
        modify_index: live.modified.0,
    })
}
