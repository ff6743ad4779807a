//! `PUT /v1/acl/bootstrap`.

use serde::Serialize;

use super::error::ApiError;
use super::json::JsonFields;
use super::request::ApiRequest;
use super::response::{ApiResponse, Change};
use super::state::ApiState;
use super::tokens::{self, TokenView};
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::PlainSecret;
use crate::service::tokens::CreatedToken;
use crate::store::Freshness;

/// Response to a bootstrap: the token, with its secret also as `ID`, which old clients read.
#[derive(Debug, Serialize)]
struct BootstrapResponse<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    #[serde(flatten)]
    token: TokenView<'a>,
}

/// Creates the first token. The optional body may set its secret (`BootstrapSecret`).
pub(super) async fn bootstrap(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let body = request.read_body().await?;
    let mut requested = None;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = JsonFields::parse(&body, "Bootstrap")?;
        requested = fields.string("BootstrapSecret")?.filter(|secret| !secret.is_empty());
        fields.finish()?;
    }
    if let Some(Err(reason)) = requested.as_deref().map(str::parse::<Id>) {
        return Err(ApiError::BootstrapSecret { reason: reason.to_string() });
    }
    let requested = requested.as_deref().map(PlainSecret::from_presented);
    let reset = state.reset.index().await;
    let CreatedToken { live, secret } = state.service.bootstrap(requested.as_ref(), reset).await?;
    request.audit_accessor(live.accessor());
    if reset.is_some() {
        state.reset.remove().await;
    }
    let token = tokens::view(state, &live.token, secret.reveal(), Freshness::Linearizable).await?;
    let subject = live.token.value.immutable().accessor_id.to_string();
    let response = ApiResponse::json(&BootstrapResponse { id: secret.reveal(), token }, request.pretty())?;
    Ok(Change { response, by: None, namespace: NamespaceName::default_namespace(), subject })
}
