//! `PUT /v1/operator/rekey`.

use serde::Serialize;

use super::error::ApiError;
use super::json::Fields;
use super::request::Ask;
use super::response::{Changed, Done, Reply};
use super::state::Rooms;
use crate::acl::model::names::NamespaceName;
use crate::acl::store::Freshness;

/// Pages of tokens that one call looks at: done in seconds, so that nobody on the way gives up waiting.
const PAGES: usize = 40;

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Answer<'a> {
    #[serde(rename = "KeyID")]
    key_id: &'a str,
    rewritten: usize,
    done: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unreadable: &'a [String],
    message: &'static str,
}

/// The body may be left out; `Generate` in it has a new key made first.
pub(super) async fn rekey(rooms: &Rooms, ask: &mut Ask) -> Result<Done, ApiError> {
    let body = ask.bytes().await?;
    let mut generate = false;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = Fields::read(&body, "Rekey")?;
        generate = fields.flag("Generate")?.unwrap_or_default();
        fields.finish()?;
    }
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let came = rooms.directory.rekey(&caller, generate, PAGES).await?;
    let message = match (came.done, came.unreadable.is_empty()) {
        (true, _) => "all tokens are under this key: the other lines of the key file may go, on every server",
        (false, true) => "there are more tokens: call again, without Generate",
        (false, false) => {
            "some tokens cannot be read: the other lines of the key file must stay until these are removed"
        }
    };
    let (key_id, rewritten, done, unreadable) = (&came.key_id, came.rewritten, came.done, &came.unreadable);
    let reply = Reply::json(&Answer { key_id, rewritten, done, unreadable, message }, ask.pretty())?;
    if !came.changed {
        return Ok(Done::Nothing(reply));
    }
    let namespace = NamespaceName::default_one();
    Ok(Done::Changed(Changed { reply, by: caller.accessor(), namespace, what: came.key_id }))
}
