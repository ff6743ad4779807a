//! Handler of `GET /v1/operator/verify`.

use serde::Serialize;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::state::ApiState;
use crate::acl::store::Freshness;

/// Result of checking all records.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct VerificationView<'a> {
    clean: bool,
    records: u64,
    without_checksum: u64,
    damaged: u64,
    damaged_keys: &'a [String],
    damaged_kinds: &'a [String],
}

pub(super) async fn verify(state: &ApiState, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let found = state.service.verify(&caller).await?;
    let view = VerificationView {
        clean: found.is_clean(),
        records: found.records,
        without_checksum: found.unchecked,
        damaged: found.damaged,
        damaged_keys: &found.damaged_keys,
        damaged_kinds: &found.damaged_kinds,
    };
    Ok(ApiResponse::json(&view, request.pretty())?)
}
