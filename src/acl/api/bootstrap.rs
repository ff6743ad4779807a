//! `PUT /v1/acl/bootstrap`.

use serde::Serialize;

use super::error::ApiError;
use super::json::Fields;
use super::request::Ask;
use super::response::{Changed, Reply};
use super::state::Rooms;
use super::tokens::{self, TokenView};
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::PlainSecret;
use crate::acl::store::Freshness;

/// The first token, with its secret once more under the name that old clients look for.
#[derive(Debug, Serialize)]
struct FirstToken<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    #[serde(flatten)]
    token: TokenView<'a>,
}

/// The body may be left out; a `BootstrapSecret` in it becomes the secret.
pub(super) async fn bootstrap(rooms: &Rooms, ask: &mut Ask) -> Result<Changed, ApiError> {
    let body = ask.bytes().await?;
    let mut given = None;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = Fields::read(&body, "Bootstrap")?;
        given = fields.text("BootstrapSecret")?.filter(|secret| !secret.is_empty());
        fields.finish()?;
    }
    let secret = match given {
        Some(given) => {
            let id: Id =
                given.parse().map_err(|reason| ApiError::Invalid(format!("Invalid BootstrapSecret: {reason}")))?;
            PlainSecret::presented(&id.to_string())
        }
        None => PlainSecret::random(),
    };
    let reset = rooms.reset.index().await;
    let live = rooms.directory.bootstrap(&secret, reset).await?;
    if reset.is_some() {
        rooms.reset.remove().await;
    }
    let token = tokens::view(rooms, &live.token, secret.reveal(), Freshness::Linearizable).await?;
    let what = live.token.value.birth().accessor_id.to_string();
    let reply = Reply::json(&FirstToken { id: secret.reveal(), token }, ask.pretty())?;
    Ok(Changed { reply, by: None, namespace: NamespaceName::default_one(), what })
}
