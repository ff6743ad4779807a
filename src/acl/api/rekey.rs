//! Handler of `PUT /v1/operator/rekey`.

use serde::Serialize;

use super::error::ApiError;
use super::json::JsonFields;
use super::request::ApiRequest;
use super::response::{ApiResponse, Change, WriteResult};
use super::state::ApiState;
use crate::model::names::NamespaceName;
use crate::store::Freshness;

/// Pages of tokens per call: done in seconds, within the timeouts of clients and proxies.
const PAGES_PER_CALL: usize = 40;

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct RekeyResponse<'a> {
    #[serde(rename = "KeyID")]
    key_id: &'a str,
    rewritten: usize,
    done: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unreadable: &'a [String],
    message: &'static str,
}

/// Moves tokens to the first key. `Generate` in the optional body creates a new key first.
pub(super) async fn rekey(state: &ApiState, request: &mut ApiRequest) -> Result<WriteResult, ApiError> {
    let body = request.read_body().await?;
    let mut generate = false;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = JsonFields::parse(&body, "Rekey")?;
        generate = fields.bool("Generate")?.unwrap_or_default();
        fields.finish()?;
    }
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let progress = state.service.key_rotation().run(&caller, generate, PAGES_PER_CALL).await?;
    let message = match (progress.done, progress.unreadable.is_empty()) {
        (true, _) => "all tokens use this key: remove the other lines from the key file of every server",
        (false, true) => "some tokens still use an older key: repeat the call without Generate",
        (false, false) => {
            "some tokens are unreadable: keep the other lines of the key file until these tokens are deleted"
        }
    };
    let key_id = &progress.key_id;
    let rewritten = progress.rewritten;
    let done = progress.done;
    let unreadable = &progress.unreadable;
    let response =
        ApiResponse::json(&RekeyResponse { key_id, rewritten, done, unreadable, message }, request.pretty())?;
    if !progress.changed {
        return Ok(WriteResult::Unchanged(response));
    }
    let namespace = NamespaceName::default_namespace();
    Ok(WriteResult::Changed(Change { response, by: caller.accessor(), namespace, subject: progress.key_id }))
}
